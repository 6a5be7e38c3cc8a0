package main

import (
	"fmt"
	"time"
)

const topic = "t"

// member is one that has joined a group; its epoch is the generation if it uses the classic protocol.
type member struct {
	group, id string
	epoch     int
}

const (
	noError                       = 0
	unknownServerError            = -1
	coordinatorLoading            = 14
	coordinatorNotAvailable       = 15
	notCoordinator                = 16
	classicTimeoutMs              = 240_000
	consumerRebalanceTimeout      = 240_000
	waitForCoordinator            = 50 * time.Millisecond
	leaveEpoch                    = -1
	keepsRebalanceTimeout         = -1
	noAssignment             int8 = -1
)

// joinClassic lets somebody join a group of its own, and gives it everything.
func joinClassic(c *connection, group string) member {
	w := &writer{}
	w.string(group)
	w.int32(classicTimeoutMs)
	w.int32(classicTimeoutMs)
	w.string("") // no member id yet
	w.string("consumer")
	w.int32(1)
	w.string("range")
	w.content(make([]byte, 30))
	m := member{group: group}
	for {
		r := c.ask(frame(joinGroup, joinVersion, false, w.bytes))
		r.skip(4)
		errorCode := r.int16()
		m.epoch = r.int32()
		_, _ = r.string(), r.string() // the assignor and the leader
		m.id = r.string()
		if errorCode == noError {
			break
		}
		if errorCode != coordinatorLoading && errorCode != coordinatorNotAvailable && errorCode != notCoordinator {
			check("join", errorCode)
		}
		time.Sleep(waitForCoordinator)
	}
	w = &writer{}
	w.string(group)
	w.int32(m.epoch)
	w.string(m.id)
	w.int32(1)
	w.string(m.id)
	w.content(make([]byte, 30))
	r := c.ask(frame(syncGroup, syncVersion, false, w.bytes))
	r.skip(4)
	check("sync", r.int16())
	return m
}

// beatOf returns the heartbeat of a member of a consumer group: that of a joiner names the topic, others name nothing
// but the partitions that the member has, if it has something to say of them.
func beatOf(m member, owned []topicPartitions) []byte {
	w := &writer{}
	w.compact(m.group)
	w.compact(m.id)
	w.int32(m.epoch)
	w.null() // instance id
	w.null() // rack id
	if m.epoch == 0 {
		w.int32(consumerRebalanceTimeout)
		w.varint(2)
		w.compact(topic)
	} else {
		w.int32(keepsRebalanceTimeout)
		w.null()
	}
	w.null() // regular expression
	w.null() // assignor
	if owned == nil {
		w.null()
	} else {
		w.varint(len(owned) + 1)
		for _, each := range owned {
			w.bytes = append(w.bytes, each.topic[:]...)
			w.varint(len(each.partitions) + 1)
			for _, partition := range each.partitions {
				w.int32(partition)
			}
			w.noTags()
		}
	}
	w.noTags()
	return frame(consumerGroupHeartbeat, consumerVersion, true, w.bytes)
}

type topicPartitions struct {
	topic      uuid
	partitions []int
}

// beaten is the answer to a heartbeat; assigned is nil where it says nothing of an assignment.
type beaten struct {
	errorCode, epoch, intervalMs int
	assigned                     []topicPartitions
}

func readBeaten(r *reader) (b beaten) {
	_ = r.varint() // tagged fields
	r.skip(4)      // throttle time
	b.errorCode = r.int16()
	_, _ = r.compact(), r.compact() // error message and member id
	b.epoch = r.int32()
	b.intervalMs = r.int32()
	r.skip(1)
	if int8(r.bytes[r.position-1]) == noAssignment {
		return
	}
	b.assigned = []topicPartitions{}
	for count := r.varint() - 1; count > 0; count-- {
		var each topicPartitions
		copy(each.topic[:], r.text(len(each.topic)))
		for partitions := r.varint() - 1; partitions > 0; partitions-- {
			each.partitions = append(each.partitions, r.int32())
		}
		_ = r.varint() // tagged fields
		b.assigned = append(b.assigned, each)
	}
	return
}

// memberID returns an id of the form that clients make.
func memberID(number int) string { return fmt.Sprintf("benchmark-member-%05d", number) }

// joinConsumer lets somebody join a consumer group of its own, and waits until it has everything.
func joinConsumer(c *connection, group string) member {
	m := member{group: group, id: memberID(0)}
	for {
		b := readBeaten(c.ask(beatOf(m, []topicPartitions{})))
		if b.errorCode == noError {
			m.epoch = b.epoch
			check("heartbeat", readBeaten(c.ask(beatOf(m, b.assigned))).errorCode)
			return m
		}
		if b.errorCode != coordinatorLoading && b.errorCode != coordinatorNotAvailable && b.errorCode != notCoordinator {
			check("join", b.errorCode)
		}
		time.Sleep(waitForCoordinator)
	}
}
