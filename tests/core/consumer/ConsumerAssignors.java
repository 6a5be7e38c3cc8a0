import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.AbstractSet;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.GroupSpec;
import org.apache.kafka.coordinator.group.api.assignor.MemberAssignment;
import org.apache.kafka.coordinator.group.api.assignor.PartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.SimpleAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/** Fills in "assignment", or "failed", in each line of the first file, and writes the second. */
public class ConsumerAssignors {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        try (BufferedReader in = Files.newBufferedReader(Path.of(arguments[0]));
                PrintWriter out = new PrintWriter(Files.newBufferedWriter(Path.of(arguments[1])))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                ObjectNode record = (ObjectNode) mapper.readTree(line);
                try {
                    record.set("assignment", answer(mapper, record));
                } catch (NoSuchElementException exception) {
                    record.put("failed", true);
                }
                out.println(mapper.writeValueAsString(record));
            }
        }
    }

    static JsonNode answer(ObjectMapper mapper, JsonNode record) {
        Map<String, Uuid> ids = new HashMap<>();
        Map<Uuid, String> names = new HashMap<>();
        Map<Uuid, Integer> counts = new HashMap<>();
        record.get("topics").properties().forEach(topic -> {
            Uuid id = Uuid.fromString(topic.getValue().get("id").asText());
            ids.put(topic.getKey(), id);
            names.put(id, topic.getKey());
            if (!topic.getValue().has("gone")) {
                counts.put(id, topic.getValue().get("partitions").asInt());
            }
        });
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new HashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        for (JsonNode member : record.get("members")) {
            Map<Uuid, Set<Integer>> assigned = new HashMap<>();
            member.get("assigned").properties().forEach(topic -> {
                List<Integer> numbers = new ArrayList<>();
                topic.getValue().forEach(number -> numbers.add(number.asInt()));
                assigned.put(ids.get(topic.getKey()), new HashSet<>(numbers));
                Map<Integer, String> owned = owners.computeIfAbsent(ids.get(topic.getKey()), id -> new HashMap<>());
                numbers.forEach(number -> owned.put(number, member.get("member_id").asText()));
            });
            members.put(member.get("member_id").asText(), new MemberSubscriptionAndAssignmentImpl(
                text(member, "rack"), text(member, "instance_id"), new Topics(member.get("topics"), ids, counts),
                new Assignment(assigned)));
        }
        SubscriptionType type = SubscriptionType.valueOf(record.get("subscription_type").asText().toUpperCase());
        GroupSpec group = new GroupSpecImpl(members, type, owners, assignable(record, ids));
        PartitionAssignor assignor = switch (record.get("assignor").asText()) {
            case "range" -> new RangeAssignor();
            case "simple" -> new SimpleAssignor();
            default -> new UniformAssignor();
        };
        Map<String, MemberAssignment> answered = assignor.assign(group, new Describer(counts)).members();
        ObjectNode answer = mapper.createObjectNode();
        answered.forEach((memberId, given) -> {
            ObjectNode topics = answer.putObject(memberId);
            given.partitions().forEach((id, partitions) -> {
                ArrayNode numbers = topics.putArray(names.get(id));
                partitions.forEach(numbers::add);
            });
        });
        return answer;
    }

    /** The partitions that may be given away; all if the record does not say. */
    static Optional<Map<Uuid, Set<Integer>>> assignable(JsonNode record, Map<String, Uuid> ids) {
        if (!record.has("assignable")) {
            return Optional.empty();
        }
        Map<Uuid, Set<Integer>> chosen = new HashMap<>();
        record.get("assignable").properties().forEach(topic -> {
            Set<Integer> numbers = chosen.computeIfAbsent(ids.get(topic.getKey()), id -> new HashSet<>());
            topic.getValue().forEach(number -> numbers.add(number.asInt()));
        });
        return Optional.of(chosen);
    }

    static Optional<String> text(JsonNode member, String name) {
        return member.get(name).isNull() ? Optional.empty() : Optional.of(member.get(name).asText());
    }

    record Describer(Map<Uuid, Integer> counts) implements SubscribedTopicDescriber {
        @Override
        public int numPartitions(Uuid id) {
            return counts.getOrDefault(id, -1);
        }

        @Override
        public Set<String> racksForPartition(Uuid id, int partition) {
            return Set.of();
        }
    }

    /** The ids of names, in the order of a set of names, as the coordinator has them. */
    static class Topics extends AbstractSet<Uuid> {
        private final List<Uuid> found = new ArrayList<>();

        Topics(JsonNode names, Map<String, Uuid> ids, Map<Uuid, Integer> counts) {
            List<String> listed = new ArrayList<>();
            names.forEach(name -> listed.add(name.asText()));
            for (String name : new HashSet<>(listed)) {
                if (counts.containsKey(ids.get(name))) {
                    found.add(ids.get(name));
                }
            }
        }

        @Override
        public Iterator<Uuid> iterator() {
            return found.iterator();
        }

        @Override
        public int size() {
            return found.size();
        }
    }
}
