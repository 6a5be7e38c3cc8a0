// A consumer service in Go, with franz-go, tested against groupcoord serve: what goes wrong is said over HTTP.
//
// BookOrders is the code under test. It books each order and commits it, and tries a commit again that was refused.
//
//	pip install '.[serve]'                                    (in the checkout)
//	GROUPCOORD=../../.venv/bin/groupcoord go test ./...     (in examples/franz_go_service)
package service

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ---------------------------------------------------------------- the code under test

// BookOrders books the orders of a topic until the context ends.
func BookOrders(ctx context.Context, bootstrap string, book func(order string)) error {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics("orders"),
		kgo.ConsumerGroup("billing"),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		for _, order := range client.PollFetches(ctx).Records() {
			book(string(order.Value))
			for client.CommitRecords(ctx, order) != nil && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// ---------------------------------------------------------------- the server

// Server is groupcoord serve in a process of its own.
type Server struct {
	t         *testing.T
	Bootstrap string
	control   string
}

var (
	listening = regexp.MustCompile(`listening on (\S+)`)
	faults    = regexp.MustCompile(`faults on purpose: (\S+)`)
)

// Serve starts a server, which ends with the test.
func Serve(t *testing.T) *Server {
	program := os.Getenv("GROUPCOORD")
	if program == "" {
		program = "groupcoord"
	}
	command := exec.Command(program, "serve", "--port", "0", "--topic", "orders:1", "--control", "0",
		"--set", "group.initial.rebalance.delay.ms=0")
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Signal(syscall.SIGTERM)
		command.Wait()
	})
	server := &Server{t: t}
	for lines := bufio.NewScanner(output); (server.Bootstrap == "" || server.control == "") && lines.Scan(); {
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			server.Bootstrap = found[1]
		}
		if found := faults.FindStringSubmatch(lines.Text()); found != nil {
			server.control = found[1]
		}
	}
	if server.Bootstrap == "" || server.control == "" {
		t.Fatal("the server did not start")
	}
	return server
}

// Tell asks the server for a fault, and returns what it answers.
func (s *Server) Tell(word, arguments string) map[string]any {
	s.t.Helper()
	response, err := http.Post(s.control+"/"+word, "application/json", strings.NewReader(arguments))
	if err != nil {
		s.t.Fatal(err)
	}
	return s.read(response)
}

// Count returns how many requests a fault has met.
func (s *Server) Count(rule map[string]any) int {
	s.t.Helper()
	id, _ := json.Marshal(rule["id"])
	response, err := http.Get(s.control + "/rules/" + string(id))
	if err != nil {
		s.t.Fatal(err)
	}
	return int(s.read(response)["count"].(float64))
}

func (s *Server) read(response *http.Response) map[string]any {
	s.t.Helper()
	defer response.Body.Close()
	answer := map[string]any{}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || response.StatusCode >= 300 {
		s.t.Fatal(response.Status, answer, err)
	}
	return answer
}

// Produce sends orders.
func (s *Server) Produce(orders ...string) {
	s.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Bootstrap), kgo.DefaultProduceTopic("orders"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer client.Close()
	for _, order := range orders {
		if err := client.ProduceSync(context.Background(), kgo.StringRecord(order)).FirstErr(); err != nil {
			s.t.Fatal(err)
		}
	}
}

// ---------------------------------------------------------------- the tests

// Run lets a service run until it has booked so many orders more, and returns them.
func Run(t *testing.T, server *Server, count int) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	booked := make(chan string, 100)
	done := make(chan error)
	go func() { done <- BookOrders(ctx, server.Bootstrap, func(order string) { booked <- order }) }()
	orders := []string{}
	for len(orders) < count {
		select {
		case order := <-booked:
			orders = append(orders, order)
		case <-ctx.Done():
			t.Fatal("booked only ", orders)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return orders
}

// A commit that is refused is tried again, and the order isn't booked twice for that.
func TestARefusedCommitIsTriedAgain(t *testing.T) {
	server := Serve(t)
	server.Produce("coffee", "tea")
	refused := server.Tell("fail_next", `{"api": "OffsetCommit", "error": "GROUP_AUTHORIZATION_FAILED", "times": 2}`)
	if orders := Run(t, server, 2); orders[0] != "coffee" || orders[1] != "tea" {
		t.Fatal(orders)
	}
	if count := server.Count(refused); count != 2 {
		t.Fatal("refused ", count)
	}
}

// A service whose connections break off between two orders goes on with the next one.
func TestAServiceSurvivesBrokenConnections(t *testing.T) {
	server := Serve(t)
	broken := server.Tell("disconnect_next", `{"api": "Fetch", "times": 2}`)
	server.Produce("coffee", "tea")
	if orders := Run(t, server, 2); orders[0] != "coffee" || orders[1] != "tea" {
		t.Fatal(orders)
	}
	if count := server.Count(broken); count != 2 {
		t.Fatal("broken off ", count)
	}
}
