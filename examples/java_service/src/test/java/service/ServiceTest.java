// A consumer service in Java, with the Apache Kafka client, tested against groupcoord serve: what goes wrong is said
// over HTTP. It runs with three nodes, so that coordinators and leaders really move.
//
// BookOrders is the code under test. It books each order and commits it, and goes on when a commit fails.
//
//     pip install '.[serve]'                                (in the checkout)
//     GROUPCOORD=../../.venv/bin/groupcoord mvn -q test     (in examples/java_service)
package service;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.function.Consumer;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(value = 2, unit = TimeUnit.MINUTES)
class ServiceTest {

    // ------------------------------------------------------------ the code under test

    /** Books the orders of a topic until it is stopped. */
    static final class BookOrders implements Runnable {
        private final KafkaConsumer<String, String> consumer;
        private final Consumer<String> book;

        BookOrders(String bootstrap, Consumer<String> book) {
            this.book = book;
            consumer = new KafkaConsumer<>(
                    Map.of(
                            "bootstrap.servers", bootstrap,
                            "group.id", "billing",
                            "auto.offset.reset", "earliest",
                            "enable.auto.commit", "false"),
                    new StringDeserializer(),
                    new StringDeserializer());
        }

        @Override
        public void run() {
            try (consumer) {
                consumer.subscribe(List.of("orders"));
                while (true) {
                    for (ConsumerRecord<String, String> order : consumer.poll(Duration.ofMillis(100))) {
                        book.accept(order.value());
                    }
                    try {
                        consumer.commitSync();
                    } catch (WakeupException stopped) {
                        throw stopped;
                    } catch (KafkaException refused) {
                        continue; // the next commit covers it
                    }
                }
            } catch (WakeupException stopped) {
                return;
            }
        }

        void stop() {
            consumer.wakeup();
        }
    }

    // ------------------------------------------------------------ the server

    /** groupcoord serve in a process of its own. */
    static final class Server implements AutoCloseable {
        private final Process process;
        private final String control;
        final String bootstrap;

        Server(int nodes) throws IOException {
            String program = System.getenv().getOrDefault("GROUPCOORD", "groupcoord");
            process = new ProcessBuilder(
                            program, "serve", "--port", "0", "--nodes", "" + nodes, "--topic", "orders:1",
                            "--control", "0", "--set", "group.initial.rebalance.delay.ms=0")
                    .redirectError(ProcessBuilder.Redirect.INHERIT)
                    .start();
            BufferedReader output = new BufferedReader(new InputStreamReader(process.getInputStream()));
            bootstrap = found("listening on (.*) \\(", output.readLine()).replace(" ", "");
            control = found("faults on purpose: (\\S+)", output.readLine());
        }

        private static String found(String pattern, String line) {
            Matcher matcher = Pattern.compile(pattern).matcher(line);
            assertTrue(matcher.find(), line);
            return matcher.group(1);
        }

        /** Says over HTTP what shall go wrong, and returns what is answered. */
        String say(String word, String arguments) throws Exception {
            HttpRequest request = HttpRequest.newBuilder(URI.create(control + "/" + word))
                    .POST(HttpRequest.BodyPublishers.ofString(arguments))
                    .build();
            HttpResponse<String> answer =
                    HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
            assertEquals(200, answer.statusCode(), answer.body());
            return answer.body();
        }

        void produce(String... orders) throws Exception {
            Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
            try (KafkaProducer<String, String> producer =
                    new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                for (String order : orders) {
                    producer.send(new ProducerRecord<>("orders", order)).get();
                }
            }
        }

        /** Returns the offset that the service has committed; -1 if none. */
        long committed() {
            try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap))) {
                Map<TopicPartition, OffsetAndMetadata> offsets = admin.listConsumerGroupOffsets("billing")
                        .partitionsToOffsetAndMetadata()
                        .get();
                OffsetAndMetadata offset = offsets.get(new TopicPartition("orders", 0));
                return offset == null ? -1 : offset.offset();
            } catch (Exception notYet) {
                return -1;
            }
        }

        @Override
        public void close() throws Exception {
            process.destroy();
            process.waitFor();
        }
    }

    private final List<String> booked = new CopyOnWriteArrayList<>();
    private Server server;
    private BookOrders service;
    private Thread thread;

    @BeforeEach
    void start() throws Exception {
        server = new Server(3);
        service = new BookOrders(server.bootstrap, booked::add);
        thread = new Thread(service);
        thread.start();
    }

    @AfterEach
    void stop() throws Exception {
        service.stop();
        thread.join();
        server.close();
    }

    static void waitUntil(BooleanSupplier condition) throws InterruptedException {
        while (!condition.getAsBoolean()) {
            Thread.sleep(20);
        }
    }

    // ------------------------------------------------------------ the tests

    @Test
    void aRefusedCommitIsTriedAgain() throws Exception {
        String rule = server.say(
                "fail_next", "{\"api\": \"OffsetCommit\", \"error\": \"GROUP_AUTHORIZATION_FAILED\", \"times\": 1}");
        assertTrue(rule.contains("OffsetCommit"), rule);

        server.produce("coffee");

        waitUntil(() -> server.committed() == 1);
        assertEquals(List.of("coffee"), booked);
    }

    @Test
    void theServiceFollowsItsCoordinatorAndItsLeader() throws Exception {
        server.produce("coffee");
        waitUntil(() -> server.committed() == 1);

        String before = server.say("coordinator", "{\"group_id\": \"billing\"}");
        server.say("move_coordinator", "{\"group_id\": \"billing\"}");
        server.say("move_leader", "{\"topic\": \"orders\"}");
        assertNotEquals(before, server.say("coordinator", "{\"group_id\": \"billing\"}"));

        server.produce("tea");
        waitUntil(() -> server.committed() == 2);
        assertEquals(List.of("coffee", "tea"), booked);
    }

    @Test
    void theServiceOutlivesANode() throws Exception {
        server.produce("coffee");
        waitUntil(() -> server.committed() == 1);

        String coordinator = found(server.say("coordinator", "{\"group_id\": \"billing\"}"));
        server.say("crash", "{\"node\": " + coordinator + "}");
        server.produce("tea");
        waitUntil(() -> server.committed() == 2);

        server.say("restart", "{\"node\": " + coordinator + "}");
        server.produce("milk");
        waitUntil(() -> server.committed() == 3);
        assertTrue(booked.containsAll(List.of("coffee", "tea", "milk")), booked::toString);
    }

    private static String found(String answer) {
        return Server.found("(\\d+)", answer);
    }
}
