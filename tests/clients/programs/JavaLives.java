import java.time.Duration;
import java.util.Map;
import java.util.ArrayList;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * For each group one of Kafka's own consumers, which polls for a while, commits once when it has partitions, and closes.
 * Arguments: HOST:PORT TOPIC MILLISECONDS GROUP...
 */
public class JavaLives {
    static void live(String bootstrap, String topic, long durationMs, String group) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("heartbeat.interval.ms", "300");
        settings.put("session.timeout.ms", "6000");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        boolean hasCommitted = false;
        consumer.subscribe(List.of(topic));
        long end = System.currentTimeMillis() + durationMs;
        try {
            while (System.currentTimeMillis() < end) {
                consumer.poll(Duration.ofMillis(20));
                if (!hasCommitted && !consumer.assignment().isEmpty()) {
                    hasCommitted = true;
                    try {
                        consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
                    } catch (CommitFailedException | RebalanceInProgressException e) {
                        // poll again
                    }
                }
            }
        } catch (KafkaException e) {
            System.out.println(group + " " + e);
        }
        consumer.close();
    }

    public static void main(String[] args) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = 3; i < args.length; i++) {
            String group = args[i];
            Thread thread = new Thread(() -> live(args[0], args[1], Long.parseLong(args[2]), group));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads)
            thread.join();
    }
}
