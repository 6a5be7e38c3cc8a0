// loadgen keeps a group coordinator busy with raw requests, and prints one line of JSON: the CPU time of the server's
// process, all its threads, from /proc. The server has the topics "t" and "few".
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
)

type options struct {
	address, mode, protocol, prefix                                                             string
	process, groups, connections, partitions, metadata, members, topicPartitions, records, size int
	seconds                                                                                     float64
}

const ticksPerSecond = 100 // of /proc, on every architecture that Go has

// cpuSeconds returns the CPU time that a process has used.
func cpuSeconds(process int) float64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", process))
	if err != nil {
		panic(err)
	}
	text := string(content)
	fields := strings.Fields(text[strings.LastIndex(text, ")")+2:])
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return float64(user+system) / ticksPerSecond
}

func main() {
	var o options
	flag.StringVar(&o.address, "address", "127.0.0.1:9092", "the server")
	flag.IntVar(&o.process, "process", 0, "the server's process id")
	flag.StringVar(&o.mode, "mode", "heartbeat", "heartbeat, commit, ramp, produce, consume or share")
	flag.StringVar(&o.protocol, "protocol", "consumer", "of the groups: classic, consumer, share or streams")
	flag.StringVar(&o.prefix, "prefix", "", "of group names")
	flag.IntVar(&o.groups, "groups", 400, "how many groups of one member")
	flag.IntVar(&o.connections, "connections", 16, "with one request in flight on each")
	flag.IntVar(&o.partitions, "partitions", 10, "in a commit")
	flag.IntVar(&o.metadata, "metadata", 0, "characters beside each offset of a commit")
	flag.IntVar(&o.members, "members", 1000, "ramp: of the group; each has a connection")
	flag.IntVar(&o.topicPartitions, "topic-partitions", 1000, "ramp: of the topic")
	flag.IntVar(&o.records, "records", 100, "produce, consume, share: in a batch")
	flag.IntVar(&o.size, "size", 1024, "produce, consume, share: bytes of a record")
	flag.Float64Var(&o.seconds, "seconds", 5, "how long; ramp: in which time the members join")
	flag.Parse()
	measure := measureSteady
	if o.mode == "ramp" {
		measure = measureRamp
	}
	line, err := json.Marshal(measure(o))
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}
