import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Kafka's own consumer; it tells its partitions as the other programs here do.
 * Arguments: HOST:PORT GROUP TOPIC STRATEGY [OFFSET [INSTANCE]]. TOPIC is an expression if it begins with ^, STRATEGY
 * the class of an assignor, or "consumer" for a consumer group (KIP-848), OFFSET what it commits for each partition that
 * it gets. It leaves the group at SIGTERM.
 */
public class JavaConsumer {
    static boolean hasNew = false;

    static void tell(String word, Collection<TopicPartition> partitions) {
        System.out.println("at " + System.currentTimeMillis());
        StringBuilder line = new StringBuilder(word);
        for (TopicPartition partition : partitions)
            line.append(' ').append(partition);
        System.out.println(line);
    }

    static void commit(KafkaConsumer<byte[], byte[]> consumer, OffsetAndMetadata offset) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (TopicPartition partition : consumer.assignment())
            offsets.put(partition, offset);
        try {
            consumer.commitSync(offsets);
            hasNew = false;
            System.out.println("committed");
        } catch (CommitFailedException | RebalanceInProgressException e) {
            System.out.println("refused " + e);
        }
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
        if (args.length > 5)
            settings.put("group.instance.id", args[5]);
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
        ConsumerRebalanceListener listener = new ConsumerRebalanceListener() {
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                tell("assigned", partitions);
                hasNew = !partitions.isEmpty() || hasNew;
            }

            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                tell("revoked", partitions);
            }

            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                tell("lost", partitions);
            }
        };
        if (args[2].startsWith("^"))
            consumer.subscribe(new SubscriptionPattern(args[2]), listener);
        else
            consumer.subscribe(List.of(args[2]), listener);
        try {
            while (true) {
                consumer.poll(Duration.ofMillis(50));
                if (hasNew && args.length > 4)
                    commit(consumer, new OffsetAndMetadata(Long.parseLong(args[4])));
            }
        } catch (WakeupException e) {
            consumer.close();
        }
    }
}
