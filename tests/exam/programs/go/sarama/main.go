// The consumer group of Sarama's examples with its synchronous producer: each record is booked, offsets go by default.
//
//	sarama BOOTSTRAP GROUP TOPIC OUTPUT
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/IBM/sarama"
)

type consumer struct {
	producer sarama.SyncProducer
	output   string
}

func (*consumer) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*consumer) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *consumer) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			booking := &sarama.ProducerMessage{Topic: c.output, Value: sarama.ByteEncoder(message.Value)}
			if _, _, err := c.producer.SendMessage(booking); err != nil {
				log.Printf("not booked: %v", err)
				return err
			}
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func main() {
	brokers, group, topic, output := strings.Split(os.Args[1], ","), os.Args[2], os.Args[3], os.Args[4]
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Retry.Max = 10
	config.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(brokers, config)
	if err != nil {
		log.Panicf("no producer: %v", err)
	}
	client, err := sarama.NewConsumerGroup(brokers, group, config)
	if err != nil {
		log.Panicf("no consumer group client: %v", err)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			// called in a loop: a rebalance ends it, and claims are others then
			if err := client.Consume(ctx, []string{topic}, &consumer{producer, output}); err != nil {
				if errors.Is(err, sarama.ErrClosedConsumerGroup) {
					return
				}
				log.Panicf("from the consumer: %v", err)
			}
			if ctx.Err() != nil {
				return
			}
		}
	}()
	<-ctx.Done()
	wg.Wait()
	if err := client.Close(); err != nil {
		log.Panicf("not closed: %v", err)
	}
}
