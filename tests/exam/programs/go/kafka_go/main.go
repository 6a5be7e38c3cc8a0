// The reader of kafka-go's README with its writer: each record is booked.
//
//	kafka_go WAY BOOTSTRAP GROUP TOPIC OUTPUT
//
// WAY is "read": ReadMessage, which commits as it reads, or "commit": FetchMessage, and CommitMessages afterwards.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	way, brokers, group, topic, output := os.Args[1], strings.Split(os.Args[2], ","), os.Args[3], os.Args[4], os.Args[5]
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers:  brokers,
		GroupID:  group,
		Topic:    topic,
		MaxBytes: 10e6, // 10MB
	})
	// by default it waits a second for more to write, and writes one record a second where each is waited for
	w := &kafka.Writer{Addr: kafka.TCP(brokers...), Topic: output, BatchTimeout: 5 * time.Millisecond}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	next := r.FetchMessage
	if way == "read" {
		next = r.ReadMessage
	}
	for {
		m, err := next(ctx)
		if err != nil {
			break
		}
		if err := w.WriteMessages(context.Background(), kafka.Message{Value: m.Value}); err != nil {
			log.Fatal("failed to write messages:", err)
		}
		if way == "commit" {
			if err := r.CommitMessages(ctx, m); err != nil {
				log.Fatal("failed to commit messages:", err)
			}
		}
	}
	if err := r.Close(); err != nil {
		log.Fatal("failed to close reader:", err)
	}
}
