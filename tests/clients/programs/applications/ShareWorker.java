import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** A worker of a share group: it says which jobs it got, and which of them are accepted for certain. */
public class ShareWorker {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[1]);
        properties.put("share.acknowledgement.mode", "explicit");
        properties.put("max.poll.records", "20");
        properties.put("default.api.timeout.ms", "10000");
        properties.put("key.deserializer", StringDeserializer.class.getName());
        properties.put("value.deserializer", StringDeserializer.class.getName());
        KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(properties);
        consumer.subscribe(Set.of(arguments[2]));
        System.out.println("started");
        while (true) {
            try {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                StringBuilder got = new StringBuilder();
                for (ConsumerRecord<String, String> record : records) {
                    got.append("got ").append(record.value()).append(' ').append(record.deliveryCount().orElse((short) 0)).append('\n');
                    boolean fails = record.value().endsWith("7") && record.deliveryCount().orElse((short) 0) == 1;
                    consumer.acknowledge(record, fails ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                }
                System.out.print(got);
                System.out.flush();
                if (records.isEmpty()) {
                    continue;
                }
                Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync();
                StringBuilder accepted = new StringBuilder();
                for (ConsumerRecord<String, String> record : records) {
                    boolean fails = record.value().endsWith("7") && record.deliveryCount().orElse((short) 0) == 1;
                    boolean isWritten = results.entrySet().stream()
                        .filter(entry -> entry.getKey().partition() == record.partition())
                        .anyMatch(entry -> entry.getValue().isEmpty());
                    if (isWritten && !fails) {
                        accepted.append("accepted ").append(record.value()).append('\n');
                    }
                }
                System.out.print(accepted);
                System.out.flush();
            } catch (KafkaException error) {
                System.out.println("error " + error);
            }
        }
    }
}
