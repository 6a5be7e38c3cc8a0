import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.errors.AuthenticationException;

/** Logs in with the settings that are its arguments (KEY=VALUE), and tells the topics that it sees, or "refused". */
public class JavaLogin {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        for (String argument : args)
            settings.put(argument.substring(0, argument.indexOf('=')), argument.substring(argument.indexOf('=') + 1));
        try (Admin admin = Admin.create(settings)) {
            System.out.println(String.join(" ", admin.listTopics().names().get(30, TimeUnit.SECONDS)));
        } catch (ExecutionException e) {
            if (!(e.getCause() instanceof AuthenticationException))
                throw e;
            System.out.println("refused");
        }
    }
}
