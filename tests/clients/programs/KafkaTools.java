// Runs commands of Kafka's tools, one after another: each line of the input is a class, its arguments and what it reads
// from its input, apart by tabs; what it prints and its status are written as a line of the same kind.

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Scanner;
import org.apache.kafka.common.utils.internals.Exit;

public class KafkaTools {
    static class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    static ByteArrayOutputStream printed;
    static String ended;
    static final List<Runnable> hooks = new ArrayList<>();

    /** Keeps the status of a tool and what it has printed, the first time: some catch what ends them here, and go on. */
    static void end(int status) {
        if (ended == null) {
            System.out.flush();
            ended = status + "\t" + printed.toString(StandardCharsets.UTF_8).replace("\\", "\\\\").replace("\n", "\\n");
        }
    }

    static void exit(int status, String message) {
        end(status);
        throw new Exited();
    }

    static String run(String[] words) throws Exception {
        String[] arguments = Arrays.copyOfRange(words, 1, words.length - 1);
        System.setIn(new ByteArrayInputStream(words[words.length - 1].replace("\\n", "\n").getBytes(StandardCharsets.UTF_8)));
        printed = new ByteArrayOutputStream();
        ended = null;
        PrintStream all = new PrintStream(printed, true, StandardCharsets.UTF_8);
        System.setOut(all);
        System.setErr(all);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            end(0);
        } catch (InvocationTargetException error) {
            if (!(error.getCause() instanceof Exited)) {
                System.err.println(error.getCause());
            }
            end(1);
        }
        for (Runnable hook : hooks) {
            hook.run();
        }
        hooks.clear();
        return ended;
    }

    public static void main(String[] none) throws Exception {
        Exit.setExitProcedure(KafkaTools::exit);
        Exit.setHaltProcedure(KafkaTools::exit);
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        PrintStream out = System.out;
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            out.println(run(lines.nextLine().split("\t", -1)));
            out.flush();
        }
    }
}
