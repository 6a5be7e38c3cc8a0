package main

import (
	"encoding/binary"
	"hash/crc32"
	"time"
)

const fetchedBatches = 32 // of a partition, one after the other, again and again

// recordBatch returns a batch of records without keys, as a client makes it.
func recordBatch(count, size int) []byte {
	records := &writer{}
	for number := range count {
		record := &writer{bytes: []byte{0}} // no attributes
		record.bytes = binary.AppendVarint(record.bytes, 0)
		record.bytes = binary.AppendVarint(record.bytes, int64(number))
		record.bytes = binary.AppendVarint(record.bytes, -1) // no key
		record.bytes = binary.AppendVarint(record.bytes, int64(size))
		record.bytes = append(record.bytes, make([]byte, size)...)
		record.bytes = binary.AppendVarint(record.bytes, 0) // no headers
		records.bytes = binary.AppendVarint(records.bytes, int64(len(record.bytes)))
		records.bytes = append(records.bytes, record.bytes...)
	}
	checked, now := &writer{}, int(time.Now().UnixMilli())
	checked.int16(0) // attributes
	checked.int32(count - 1)
	checked.int64(now)
	checked.int64(now)
	checked.int64(-1) // no producer id
	checked.int16(-1)
	checked.int32(-1)
	checked.int32(count)
	checked.bytes = append(checked.bytes, records.bytes...)
	batch := &writer{}
	batch.int64(0) // the base offset
	batch.int32(len(checked.bytes) + 9)
	batch.int32(-1)                      // the leader epoch
	batch.bytes = append(batch.bytes, 2) // magic
	batch.int32(int(crc32.Checksum(checked.bytes, crc32.MakeTable(crc32.Castagnoli))))
	return append(batch.bytes, checked.bytes...)
}

// produceRequest returns a request with one batch for one partition, to be acknowledged by the leader.
func produceRequest(partition int, batch []byte) []byte {
	w := &writer{}
	w.int16(-1) // no transactional id
	w.int16(1)  // acks
	w.int32(30_000)
	w.int32(1)
	w.string(topic)
	w.int32(1)
	w.int32(partition)
	w.content(batch)
	return frame(produce, produceVersion, false, w.bytes)
}

// fetchRequest returns a request for what stands at an offset, which is answered with a batch if it is there.
func fetchRequest(partition, offset, maxBytes int) []byte {
	w := &writer{}
	w.int32(-1) // no replica
	w.int32(500)
	w.int32(1)
	w.int32(50 << 20)
	w.bytes = append(w.bytes, 0) // read_uncommitted
	w.int32(0)                   // no session
	w.int32(-1)
	w.int32(1)
	w.string(topic)
	w.int32(1)
	w.int32(partition)
	w.int32(-1) // the leader epoch
	w.int64(offset)
	w.int64(-1)
	w.int32(maxBytes)
	w.int32(0)
	w.string("")
	return frame(fetch, fetchVersion, false, w.bytes)
}

// recordRequests returns what a connection asks again and again of the partition that is its own.
func recordRequests(o options, c *connection, partition int) [][]byte {
	batch := recordBatch(o.records, o.size)
	request := produceRequest(partition, batch)
	if o.mode == "produce" {
		return [][]byte{request}
	}
	requests := make([][]byte, 0, fetchedBatches)
	for range fetchedBatches {
		r := c.ask(request)
		check("Produce", produceError(r))
		requests = append(requests, fetchRequest(partition, r.int64(), len(batch)))
	}
	return requests
}

func produceError(r *reader) int {
	r.skip(4)
	_ = r.string()
	r.skip(8)
	return r.int16()
}

// fetchError returns the error code of the partition, or that nothing came.
func fetchError(r *reader) int {
	r.skip(14)
	_ = r.string()
	r.skip(8)
	errorCode := r.int16()
	r.skip(24)
	r.skip(16 * max(r.int32(), 0)) // aborted transactions
	r.skip(4)
	if errorCode == noError && r.int32() <= 0 {
		return unknownServerError
	}
	return errorCode
}
