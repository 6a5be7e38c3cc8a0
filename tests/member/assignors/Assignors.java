import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.PrintWriter;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Fills in "assignment" (null if the assignor throws) in each line of the first file, and writes the second. */
public class Assignors {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        try (BufferedReader in = Files.newBufferedReader(Path.of(arguments[0]));
                PrintWriter out = new PrintWriter(Files.newBufferedWriter(Path.of(arguments[1])))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                ObjectNode record = (ObjectNode) mapper.readTree(line);
                record.set("assignment", answer(mapper, record));
                out.println(mapper.writeValueAsString(record));
            }
        }
    }

    static ConsumerPartitionAssignor assignor(String name) {
        return switch (name) {
            case "range" -> new RangeAssignor();
            case "roundrobin" -> new RoundRobinAssignor();
            case "sticky" -> new StickyAssignor();
            default -> new CooperativeStickyAssignor();
        };
    }

    static JsonNode answer(ObjectMapper mapper, JsonNode record) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (JsonNode member : record.get("members")) {
            subscriptions.put(member.get("member_id").asText(), subscription(record, member));
        }
        Map<String, Assignment> answered;
        try {
            GroupSubscription group = new GroupSubscription(subscriptions);
            answered = assignor(record.get("assignor").asText()).assign(cluster(record), group).groupAssignment();
        } catch (RuntimeException thrown) {
            return mapper.nullNode();
        }
        ObjectNode answer = mapper.createObjectNode();
        for (JsonNode member : record.get("members")) {
            ObjectNode topics = answer.putObject(member.get("member_id").asText());
            for (TopicPartition given : answered.get(member.get("member_id").asText()).partitions()) {
                ArrayNode numbers = (ArrayNode) topics.get(given.topic());
                (numbers == null ? topics.putArray(given.topic()) : numbers).add(given.partition());
            }
        }
        return answer;
    }

    static Subscription subscription(JsonNode record, JsonNode member) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        if (record.get("assignor").asText().equals("cooperative-sticky")) {
            member.get("owned_partitions").properties().forEach(topic ->
                topic.getValue().forEach(number -> owned.add(new TopicPartition(topic.getKey(), number.asInt()))));
        }
        String userData = text(member, "user_data_hex");
        Subscription subscription = new Subscription(
            topics,
            userData == null ? null : ByteBuffer.wrap(HexFormat.of().parseHex(userData)),
            owned,
            member.get("generation_id").asInt(),
            Optional.ofNullable(text(member, "rack")));
        subscription.setGroupInstanceId(Optional.ofNullable(text(member, "instance_id")));
        return subscription;
    }

    static String text(JsonNode member, String name) {
        return member.get(name).isNull() ? null : member.get(name).asText();
    }

    static Cluster cluster(JsonNode record) {
        List<Node> nodes = List.of(new Node(1, "h", 1), new Node(2, "h", 1), new Node(3, "h", 1));
        List<PartitionInfo> partitions = new ArrayList<>();
        record.get("topics").properties().forEach(topic -> {
            JsonNode racks = topic.getValue().get("replica_racks");
            for (int number = 0; number < topic.getValue().get("partitions").asInt(); number++) {
                Node[] replicas = new Node[racks.isNull() ? 1 : racks.get(number).size()];
                for (int i = 0; i < replicas.length; i++) {
                    boolean isRackless = racks.isNull() || racks.get(number).get(i).isNull();
                    replicas[i] = new Node(i + 1, "h", 1, isRackless ? null : racks.get(number).get(i).asText());
                }
                partitions.add(new PartitionInfo(topic.getKey(), number, null, replicas, replicas));
            }
        });
        return new Cluster("cluster", nodes, partitions, Set.of(), Set.of());
    }
}
