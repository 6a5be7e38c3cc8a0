import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own consumer; it tells its partitions as the other programs here do.
 * Arguments: HOST:PORT GROUP TOPIC STRATEGY, the last "consumer" for a consumer group (KIP-848). It leaves the group at
 * SIGTERM.
 */
public class JavaConsumer {
    static void tell(String word, Collection<TopicPartition> partitions) {
        StringBuilder line = new StringBuilder(word);
        for (TopicPartition partition : partitions)
            line.append(' ').append(partition);
        System.out.println(line);
    }

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("client.id", "java");
        if (args[3].equals("consumer")) {
            settings.put("group.protocol", "consumer");
        } else {
            settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + args[3]);
            settings.put("session.timeout.ms", "6000");
            settings.put("heartbeat.interval.ms", "300");
        }
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        consumer.subscribe(List.of(args[2]), new ConsumerRebalanceListener() {
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                tell("assigned", partitions);
            }

            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                tell("revoked", partitions);
            }

            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                tell("lost", partitions);
            }
        });
        try {
            while (true)
                consumer.poll(Duration.ofMillis(50));
        } catch (WakeupException e) {
            consumer.close();
        }
    }
}
