// Command kfakeserver runs kfake, franz-go's broker for tests, until it is ended.
package main

import (
	"flag"
	"log"

	"github.com/twmb/franz-go/pkg/kfake"
)

func main() {
	port := flag.Int("port", 9092, "where it listens, on the loopback address")
	flag.Parse()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.Ports(*port))
	if err != nil {
		log.Fatal(err)
	}
	defer cluster.Close()
	log.Printf("listening on %v", cluster.ListenAddrs())
	select {}
}
