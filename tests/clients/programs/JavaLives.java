import java.time.Duration;
import java.util.Map;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * For each group one of Kafka's own consumers, which polls for a while, commits once when it has had partitions for a
 * moment, and closes. What poll throws ends its life in the classic protocol; in a consumer group it polls on, since
 * some of it passes.
 * The first group's is alone, so that all classes are loaded when the others are measured against a clock.
 * Arguments: HOST:PORT TOPIC MILLISECONDS MOMENT PROTOCOL GROUP...
 */
public class JavaLives {
    static final int AT_A_TIME = 10; // more of them, with their threads, would slow each other down

    static void live(
        String bootstrap, String topic, long durationMs, long commitAfterMs, String protocol, String group
    ) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        if (protocol.equals("classic")) {
            settings.put("heartbeat.interval.ms", "300");
            settings.put("session.timeout.ms", "6000");
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer.RangeAssignor");
        }
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        boolean hasCommitted = false;
        boolean goesOn = true;
        long commitTime = Long.MAX_VALUE;
        consumer.subscribe(List.of(topic));
        long end = System.currentTimeMillis() + durationMs;
        while (goesOn && System.currentTimeMillis() < end) {
            try {
                consumer.poll(Duration.ofMillis(20));
                if (!consumer.assignment().isEmpty())
                    commitTime = Math.min(commitTime, System.currentTimeMillis() + commitAfterMs);
                if (!hasCommitted && System.currentTimeMillis() >= commitTime && !consumer.assignment().isEmpty()) {
                    hasCommitted = true;
                    consumer.commitSync(Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(1)));
                }
            } catch (CommitFailedException | RebalanceInProgressException e) {
                // poll again
            } catch (KafkaException e) {
                goesOn = protocol.equals("consumer");
            }
        }
        consumer.close();
    }

    public static void main(String[] args) throws Exception {
        long durationMs = Long.parseLong(args[2]), commitAfterMs = Long.parseLong(args[3]);
        live(args[0], args[1], durationMs, commitAfterMs, args[4], args[5]);
        ExecutorService threads = Executors.newFixedThreadPool(AT_A_TIME);
        for (int i = 6; i < args.length; i++) {
            String group = args[i];
            threads.submit(() -> live(args[0], args[1], durationMs, commitAfterMs, args[4], group));
        }
        threads.shutdown();
        threads.awaitTermination(10, TimeUnit.MINUTES);
    }
}
