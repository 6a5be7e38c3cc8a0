package main

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// steadyRequest returns what a member asks again and again, and where its answer has the first error code.
func steadyRequest(o options, m member) []byte {
	w := &writer{}
	switch {
	case o.mode == "heartbeat" && o.protocol == "consumer":
		return beatOf(m, nil)
	case o.mode == "heartbeat" && o.protocol == "share":
		return beatOfShare(m)
	case o.mode == "heartbeat" && o.protocol == "streams":
		return beatOfStreams(m)
	case o.mode == "heartbeat":
		w.string(m.group)
		w.int32(m.epoch)
		w.string(m.id)
		return frame(heartbeat, heartbeatVersion, false, w.bytes)
	case o.protocol == "consumer":
		w.compact(m.group)
		w.int32(m.epoch)
		w.compact(m.id)
		w.null() // instance id
		w.varint(2)
		w.compact(topic)
		w.varint(o.partitions + 1)
		for partition := range o.partitions {
			w.int32(partition)
			w.int64(42)
			w.int32(-1)
			w.compact(strings.Repeat("m", o.metadata))
			w.noTags()
		}
		w.noTags()
		w.noTags()
		return frame(offsetCommit, consumerCommitVersion, true, w.bytes)
	default:
		w.string(m.group)
		w.int32(m.epoch)
		w.string(m.id)
		w.int16(-1) // no instance id
		w.int32(1)
		w.string(topic)
		w.int32(o.partitions)
		for partition := range o.partitions {
			w.int32(partition)
			w.int64(42)
			w.int32(-1)
			w.string(strings.Repeat("m", o.metadata))
		}
		return frame(offsetCommit, classicCommitVersion, false, w.bytes)
	}
}

// firstError returns the first error code in the answer to a steady request.
func firstError(o options, r *reader) int {
	switch {
	case o.mode == "produce":
		return produceError(r)
	case o.mode == "consume":
		return fetchError(r)
	case o.mode == "heartbeat" && o.protocol == "streams":
		errorCode, _ := readStreamsBeaten(r)
		return errorCode
	case o.mode == "heartbeat" && o.protocol != "classic":
		return readBeaten(r).errorCode
	case o.mode == "heartbeat":
		r.skip(4)
	case o.protocol == "consumer":
		_ = r.varint()
		r.skip(4)
		_, _, _ = r.varint(), r.compact(), r.varint()
		r.skip(4)
	default:
		r.skip(8)
		_ = r.string()
		r.skip(8)
	}
	return r.int16()
}

// memberRequests returns what the members of a connection's groups ask again and again.
func memberRequests(o options, c *connection, number int) (requests [][]byte) {
	join := map[string]func(*connection, string) member{
		"classic": joinClassic, "consumer": joinConsumer, "share": joinShare, "streams": joinStreams,
	}[o.protocol]
	for group := number; group < o.groups; group += o.connections {
		name := fmt.Sprintf("%sgroup-%d", o.prefix, group)
		requests = append(requests, steadyRequest(o, join(c, name)))
	}
	return requests
}

// steps returns what a connection does again and again; a step returns the first error code that it is answered.
func steps(o options, c *connection, number int) func() int {
	if o.mode == "share" {
		return newWorker(o, c, number).work
	}
	requestsOf := memberRequests
	if o.mode == "produce" || o.mode == "consume" {
		requestsOf = recordRequests
	}
	requests, next := requestsOf(o, c, number), -1
	return func() int {
		next++
		return firstError(o, c.ask(requests[next%len(requests)]))
	}
}

// measureSteady does the same again and again, one request in flight on each connection.
func measureSteady(o options) map[string]any {
	step := make([]func() int, o.connections)
	var all sync.WaitGroup
	for number := range step {
		all.Add(1)
		go func() {
			defer all.Done()
			step[number] = steps(o, connect(o.address), number)
		}()
	}
	all.Wait()
	var answered, refused atomic.Int64
	var isOver atomic.Bool
	for _, do := range step {
		all.Add(1)
		go func() {
			defer all.Done()
			for !isOver.Load() {
				errorCode := do()
				answered.Add(1)
				if errorCode != noError {
					refused.Add(1)
				}
			}
		}()
	}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	time.Sleep(seconds(o.seconds / 2)) // to warm up
	before, cpuBefore, start := answered.Load(), cpuSeconds(o.process), time.Now()
	time.Sleep(seconds(o.seconds))
	count, cpu, took := answered.Load()-before, cpuSeconds(o.process)-cpuBefore, time.Since(start).Seconds()
	isOver.Store(true)
	all.Wait()
	return map[string]any{
		"requests": count, "refused": refused.Load(), "cpu": cpu / float64(count) * 1e6, "per_second": float64(count) / took,
	}
}
