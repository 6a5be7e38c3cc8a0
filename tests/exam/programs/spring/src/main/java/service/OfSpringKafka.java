package service;

import java.util.Map;
import org.springframework.beans.factory.annotation.Autowired;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.core.KafkaTemplate;

/**
 * The consumer of Spring for Apache Kafka's quick tour, with the template of its producer: each record is booked,
 * offsets go by default. Arguments: BOOTSTRAP GROUP TOPIC OUTPUT PROTOCOL.
 */
@SpringBootApplication
public class OfSpringKafka {
    @Autowired
    private KafkaTemplate<String, String> template;

    @Value("${exam.to}")
    private String output;

    public static void main(String[] args) {
        SpringApplication application = new SpringApplication(OfSpringKafka.class);
        application.setDefaultProperties(Map.of(
            "spring.kafka.bootstrap-servers", args[0],
            "spring.kafka.consumer.auto-offset-reset", "earliest",
            "spring.kafka.consumer.properties.group.protocol", args[4],
            "exam.id", args[1],
            "exam.from", args[2],
            "exam.to", args[3],
            "spring.main.keep-alive", "true"));
        application.run();
    }

    @KafkaListener(id = "${exam.id}", topics = "${exam.from}")
    public void listen(String in) {
        template.send(output, in).join();
    }
}
