package main

import (
	"fmt"
	"time"
)

const (
	smallTopic       = "few" // each partition of a share group has a state, so there are not many
	shareBatches     = 100   // of a partition, which one group after the other works through
	shareGroupsReady = 8
	longestWaitMs    = 5_000
	acceptType       = 1
	firstEpoch       = 0
	finalEpoch       = -1
)

// beatOfShare returns the heartbeat of a member of a share group; that of a joiner names the topic.
func beatOfShare(m member) []byte {
	w := &writer{}
	w.compact(m.group)
	w.compact(m.id)
	w.int32(m.epoch)
	w.null() // rack id
	if m.epoch == 0 {
		w.varint(2)
		w.compact(smallTopic)
	} else {
		w.null()
	}
	w.noTags()
	return frame(shareGroupHeartbeat, shareVersion, true, w.bytes)
}

// joinShare lets somebody join a share group of its own, and waits until it has everything.
func joinShare(c *connection, group string) member {
	m := member{group: group, id: memberID(0)}
	for {
		b := readBeaten(c.ask(beatOfShare(m)))
		if b.errorCode != coordinatorLoading && b.errorCode != coordinatorNotAvailable && b.errorCode != notCoordinator {
			check("join", b.errorCode)
			m.epoch = b.epoch
		}
		if len(b.assigned) > 0 {
			return m
		}
		time.Sleep(waitForCoordinator)
	}
}

// worker takes records of its partition, a batch at a time, and accepts them: in one group after the other, all of
// which begin at the same offset.
type worker struct {
	options
	c                                 *connection
	number, begin, group, done, epoch int
	topic                             uuid
	prepared                          int
}

func newWorker(o options, c *connection, number int) *worker {
	k := &worker{options: o, c: c, number: number}
	request := produceRequest(number, recordBatch(o.records, o.size))
	for batch := range shareBatches {
		r := c.ask(request)
		check("Produce", produceError(r))
		if batch == 0 {
			k.begin = r.int64()
		}
	}
	for range shareGroupsReady {
		k.prepare()
	}
	return k
}

func (k *worker) name(group int) string {
	return fmt.Sprintf("%sworkers-%d-%d", k.prefix, k.number, group)
}

// prepare lets another group begin at the first batch.
func (k *worker) prepare() {
	w := &writer{}
	w.compact(k.name(k.prepared))
	w.varint(2)
	w.compact(topic)
	w.varint(2)
	w.int32(k.number)
	w.int64(k.begin)
	w.noTags()
	w.noTags()
	w.noTags()
	for {
		r := k.c.ask(frame(alterShareGroupOffsets, alterShareVersion, true, w.bytes))
		_ = r.varint()
		r.skip(4)
		errorCode := r.int16()
		_ = r.compact()
		if errorCode == noError {
			_, _ = r.varint(), r.compact()
			copy(k.topic[:], r.text(len(k.topic)))
			_ = r.varint()
			r.skip(4)
			errorCode = r.int16()
		}
		if errorCode == noError {
			break
		}
		time.Sleep(waitForCoordinator)
	}
	k.prepared++
}

// begun returns the beginning of a request in the session of the group.
func (k *worker) begun(epoch int) *writer {
	w := &writer{}
	w.compact(k.name(k.group))
	w.compact(memberID(k.number))
	w.int32(epoch)
	return w
}

// work takes a batch and accepts it; it returns the first error code.
func (k *worker) work() int {
	if k.done == shareBatches {
		k.group, k.done, k.epoch = k.group+1, 0, firstEpoch
		if k.group == k.prepared {
			k.prepare()
		}
	}
	w := k.begun(k.epoch)
	w.int32(longestWaitMs)
	w.int32(1)
	w.int32(50 << 20)
	w.int32(k.records)
	w.int32(k.records)
	if k.epoch == firstEpoch {
		w.varint(2)
		w.bytes = append(w.bytes, k.topic[:]...)
		w.varint(2)
		w.int32(k.number)
		w.varint(1)
		w.noTags()
		w.noTags()
	} else {
		w.varint(1)
	}
	w.varint(1) // nothing is forgotten
	w.noTags()
	errorCode, first, last := acquired(k.c.ask(frame(shareFetch, shareVersion, true, w.bytes)))
	if errorCode != noError {
		return errorCode
	}
	k.epoch++
	k.done++
	epoch := k.epoch
	if k.done == shareBatches {
		epoch = finalEpoch
	}
	w = k.begun(epoch)
	w.varint(2)
	w.bytes = append(w.bytes, k.topic[:]...)
	w.varint(2)
	w.int32(k.number)
	w.varint(2)
	w.int64(first)
	w.int64(last)
	w.varint(2)
	w.bytes = append(w.bytes, acceptType)
	w.noTags()
	w.noTags()
	w.noTags()
	w.noTags()
	k.epoch++
	return acknowledged(k.c.ask(frame(shareAcknowledge, shareVersion, true, w.bytes)))
}

// acquired returns the first error code of a fetch, and from where to where its records lie.
func acquired(r *reader) (errorCode, first, last int) {
	errorCode = shareError(r)
	if errorCode != noError {
		return errorCode, 0, 0
	}
	r.skip(4) // the time of locks
	if r.varint() < 2 {
		return unknownServerError, 0, 0
	}
	r.skip(len(uuid{}))
	_ = r.varint()
	r.skip(4)
	errorCode = r.int16()
	_ = r.compact()
	r.skip(2) // of acknowledgements
	_ = r.compact()
	r.skip(8) // the leader
	_ = r.varint()
	r.skip(max(r.varint()-1, 0)) // the records
	if r.varint() != 2 {
		return unknownServerError, 0, 0
	}
	return errorCode, r.int64(), r.int64()
}

func acknowledged(r *reader) int {
	errorCode := shareError(r)
	if errorCode != noError || r.varint() < 2 {
		return errorCode
	}
	r.skip(len(uuid{}))
	_ = r.varint()
	r.skip(4)
	return r.int16()
}

// shareError returns the error code of an answer in a share session, and goes on behind it.
func shareError(r *reader) int {
	_ = r.varint()
	r.skip(4)
	errorCode := r.int16()
	_ = r.compact()
	return errorCode
}
