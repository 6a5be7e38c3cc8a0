package main

import "time"

// beatOfStreams returns the heartbeat of a member of a streams group; that of a joiner brings a topology that reads a
// topic, and keeps nothing.
func beatOfStreams(m member) []byte {
	w := &writer{}
	w.compact(m.group)
	w.compact(m.id)
	w.int32(m.epoch)
	w.int32(0) // the endpoints' epoch
	w.null()   // instance id
	w.null()   // rack id
	if m.epoch == 0 {
		w.int32(consumerRebalanceTimeout)
		w.bytes = append(w.bytes, 1) // there is a topology
		w.int32(0)
		w.varint(2)
		w.compact("0")
		w.varint(2)
		w.compact(smallTopic)
		for range 5 { // expressions, changelogs, sinks, repartition topics, copartition groups
			w.varint(1)
		}
		w.noTags()
		w.noTags()
		for range 3 { // tasks
			w.varint(1)
		}
		w.compact(m.id) // of the process
	} else {
		w.int32(keepsRebalanceTimeout)
		w.bytes = append(w.bytes, 0xff) // no topology
		for range 4 {
			w.null()
		}
	}
	w.bytes = append(w.bytes, 0xff) // no endpoint
	for range 3 {                   // tags and offsets
		w.null()
	}
	w.bytes = append(w.bytes, 0) // nobody is to shut down
	w.noTags()
	return frame(streamsGroupHeartbeat, streamsVersion, true, w.bytes)
}

// readStreamsBeaten returns error code and epoch of the answer to a heartbeat.
func readStreamsBeaten(r *reader) (errorCode, epoch int) {
	_ = r.varint() // tagged fields
	r.skip(4)      // throttle time
	errorCode = r.int16()
	_, _ = r.compact(), r.compact() // error message and member id
	return errorCode, r.int32()
}

// joinStreams lets somebody join a streams group of its own, and waits until all is quiet there.
func joinStreams(c *connection, group string) member {
	m := member{group: group, id: memberID(0)}
	for quiet := 0; quiet < 3; {
		errorCode, epoch := readStreamsBeaten(c.ask(beatOfStreams(m)))
		if errorCode == coordinatorLoading || errorCode == coordinatorNotAvailable || errorCode == notCoordinator {
			time.Sleep(waitForCoordinator)
			continue
		}
		check("heartbeat", errorCode)
		if epoch == m.epoch {
			quiet++
		}
		m.epoch = epoch
	}
	return m
}
