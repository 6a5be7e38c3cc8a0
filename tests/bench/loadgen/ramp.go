package main

import (
	"sync"
	"sync/atomic"
	"time"
)

// rampMember is one of the group that grows: its state is what the server has told it last.
type rampMember struct {
	member
	owned     []topicPartitions
	epochTold atomic.Int64
	countTold atomic.Int64
}

// live joins and sends heartbeats as clients do: at the interval that the server tells, and at once after every change
// of the assignment, to say that it is done.
func (m *rampMember) live(c *connection, requests *atomic.Int64, isOver chan struct{}) {
	toSay := []topicPartitions{}
	for {
		b := readBeaten(c.ask(beatOf(m.member, toSay)))
		requests.Add(1)
		check("heartbeat", b.errorCode)
		m.epoch = b.epoch
		m.epochTold.Store(int64(b.epoch))
		pause := time.Duration(b.intervalMs) * time.Millisecond
		toSay = nil
		if b.assigned != nil {
			count := 0
			for _, each := range b.assigned {
				count += len(each.partitions)
			}
			m.countTold.Store(int64(count))
			toSay, pause = b.assigned, 0
		}
		select {
		case <-isOver:
			m.epoch = leaveEpoch
			c.ask(beatOf(m.member, nil))
			return
		case <-time.After(pause):
		}
	}
}

// measureRamp lets members join one group, one after the other over some seconds, and waits until all have the same
// epoch and as many partitions. All leave afterwards, which is not measured.
func measureRamp(o options) map[string]any {
	members := make([]*rampMember, o.members)
	connections := make([]*connection, o.members)
	for number := range members {
		members[number] = &rampMember{member: member{group: o.prefix + "ramp", id: memberID(number)}}
		connections[number] = connect(o.address)
	}
	var requests atomic.Int64
	isOver := make(chan struct{})
	var all sync.WaitGroup
	cpuBefore, start := cpuSeconds(o.process), time.Now()
	for number, m := range members {
		all.Add(1)
		go func() {
			defer all.Done()
			time.Sleep(time.Duration(float64(number) / float64(o.members) * o.seconds * float64(time.Second)))
			m.live(connections[number], &requests, isOver)
		}()
	}
	for !isSettled(members, o.topicPartitions/o.members) {
		time.Sleep(20 * time.Millisecond)
	}
	cpu, took := cpuSeconds(o.process)-cpuBefore, time.Since(start).Seconds()
	count := requests.Load()
	close(isOver)
	all.Wait()
	return map[string]any{"requests": count, "refused": 0, "cpu": cpu, "per_second": float64(count) / took, "seconds": took}
}

func isSettled(members []*rampMember, share int) bool {
	for _, m := range members {
		if m.epochTold.Load() != members[0].epochTold.Load() || m.epochTold.Load() == 0 || m.countTold.Load() != int64(share) {
			return false
		}
	}
	return true
}
