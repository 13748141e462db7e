// The workloads on nats.go. Arguments: work url count size subject stream number option. The number is that of a
// batch, a window or of goroutines; the option that of acks or storage. Says "ready" when a feeder may begin, and ends
// with one line of JSON, as the other clients do.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var (
	work, subject, stream, option string
	count, size, number           int
	payload                       []byte
	nc                            *nats.Conn
	js                            jetstream.JetStream
	ctx                           = context.Background()
	started                       time.Time
	cpuBefore                     float64
	times                         []float64
)

func check(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", work, err)
		os.Exit(1)
	}
}

func need[T any](value T, err error) T {
	check(err)
	return value
}

func cpu() float64 {
	var used syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return float64(used.Utime.Nano()+used.Stime.Nano()) / 1e9
}

func begin() {
	cpuBefore = cpu()
	started = time.Now()
}

func end() {
	wall, used := time.Since(started).Seconds(), cpu()-cpuBefore
	rss := 0.0
	for _, line := range strings.Split(string(need(os.ReadFile("/proc/self/status"))), "\n") {
		if strings.HasPrefix(line, "VmHWM:") {
			rss = need(strconv.ParseFloat(strings.Fields(line)[1], 64)) / 1024
		}
	}
	fmt.Printf(`{"wall": %.6f, "cpu": %.6f, "rss": %.1f`, wall, used, rss)
	if len(times) > 0 {
		sort.Float64s(times)
		fmt.Printf(`, "p50": %.1f, "p99": %.1f`, times[len(times)/2]*1e6, times[len(times)*99/100]*1e6)
	}
	fmt.Println("}")
}

func storage() jetstream.StorageType {
	if option == "file" {
		return jetstream.FileStorage
	}
	return jetstream.MemoryStorage
}

func createStream() {
	config := jetstream.StreamConfig{Name: stream, Subjects: []string{subject}, Storage: storage()}
	need(js.CreateStream(ctx, config))
}

func consumer(ack jetstream.AckPolicy) jetstream.Consumer {
	config := jetstream.ConsumerConfig{AckPolicy: ack, MaxAckPending: -1}
	if ack == jetstream.AckNonePolicy {
		config.MaxAckPending = 0
	}
	return need(js.CreateConsumer(ctx, stream, config))
}

func ackPolicy() jetstream.AckPolicy {
	if option == "explicit" {
		return jetstream.AckExplicitPolicy
	}
	return jetstream.AckNonePolicy
}

func corePublish() {
	begin()
	for i := 0; i < count; i++ {
		check(nc.Publish(subject, payload))
	}
	check(nc.FlushTimeout(time.Minute))
	end()
}

func coreSubscribe() {
	done, got := make(chan struct{}), 0
	sub := need(nc.Subscribe(subject, func(*nats.Msg) {
		if got == 0 {
			begin()
		}
		got++
		if got == count {
			close(done)
		}
	}))
	check(sub.SetPendingLimits(-1, -1))
	check(nc.Flush())
	fmt.Println("ready")
	<-done
	end()
}

// waitForResponder returns when somebody answers.
func waitForResponder() {
	for i := 0; i < 100; i++ {
		if _, err := nc.Request(subject, payload, 500*time.Millisecond); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func oneByOne(step func() error) {
	times = make([]float64, 0, count)
	begin()
	for i := 0; i < count; i++ {
		before := time.Now()
		check(step())
		times = append(times, time.Since(before).Seconds())
	}
	end()
}

func sideBySide(step func() error) {
	var all sync.WaitGroup
	begin()
	for i := 0; i < number; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for j := 0; j < count/number; j++ {
				check(step())
			}
		}()
	}
	all.Wait()
	end()
}

func request() error {
	_, err := nc.Request(subject, payload, 5*time.Second)
	return err
}

func publish() error {
	_, err := js.Publish(ctx, subject, payload)
	return err
}

func publishAsync() {
	createStream()
	begin()
	for i := 0; i < count; i++ {
		need(js.PublishAsync(subject, payload))
	}
	<-js.PublishAsyncComplete()
	end()
}

func fetch() {
	from := consumer(jetstream.AckExplicitPolicy)
	begin()
	for got := 0; got < count; {
		batch := need(from.Fetch(number))
		for message := range batch.Messages() {
			check(message.Ack())
			got++
		}
		check(batch.Error())
	}
	check(nc.FlushTimeout(time.Minute))
	end()
}

func messages(from jetstream.Consumer) {
	begin()
	iterator := need(from.Messages())
	for i := 0; i < count; i++ {
		message := need(iterator.Next())
		if option == "explicit" {
			check(message.Ack())
		}
	}
	check(nc.FlushTimeout(time.Minute))
	end()
	iterator.Stop()
}

func consume() {
	from, done, got := consumer(ackPolicy()), make(chan struct{}), 0
	begin()
	running := need(from.Consume(func(message jetstream.Msg) {
		if option == "explicit" {
			check(message.Ack())
		}
		got++
		if got == count {
			close(done)
		}
	}))
	<-done
	check(nc.FlushTimeout(time.Minute))
	end()
	running.Stop()
}

func doubleAcks() {
	var lock sync.Mutex
	unacked := make([]jetstream.Msg, 0, count)
	for from := consumer(jetstream.AckExplicitPolicy); len(unacked) < count; {
		for message := range need(from.Fetch(1000)).Messages() {
			unacked = append(unacked, message)
		}
	}
	sideBySide(func() error {
		lock.Lock()
		message := unacked[len(unacked)-1]
		unacked = unacked[:len(unacked)-1]
		lock.Unlock()
		return message.DoubleAck(ctx)
	})
}

func bucket() jetstream.KeyValue {
	kv := need(js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: stream, Storage: jetstream.MemoryStorage}))
	need(kv.Put(ctx, "key", payload))
	return kv
}

func objects(get bool) {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i * 31)
	}
	config := jetstream.ObjectStoreConfig{Bucket: stream, Storage: jetstream.MemoryStorage}
	store := need(js.CreateObjectStore(ctx, config))
	if !get {
		begin()
		need(store.Put(ctx, jetstream.ObjectMeta{Name: "blob"}, bytes.NewReader(data)))
		end()
		return
	}
	need(store.Put(ctx, jetstream.ObjectMeta{Name: "blob"}, bytes.NewReader(data)))
	path := need(os.MkdirTemp("/dev/shm", "bench")) + "/blob"
	check(os.WriteFile(path, make([]byte, size), 0o600)) // its pages have been in use before, as for the others
	begin()
	check(store.GetFile(ctx, "blob", path))
	end()
	if sha256.Sum256(need(os.ReadFile(path))) != sha256.Sum256(data) {
		check(fmt.Errorf("what was read is not what was written"))
	}
	check(os.RemoveAll(path[:len(path)-len("/blob")]))
}

func main() {
	work, subject, stream, option = os.Args[1], os.Args[5], os.Args[6], os.Args[8]
	count, size, number = need(strconv.Atoi(os.Args[3])), need(strconv.Atoi(os.Args[4])), need(strconv.Atoi(os.Args[7]))
	payload = make([]byte, size)
	nc = need(nats.Connect(os.Args[2]))
	js = need(jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(number)))
	switch work {
	case "core_publish":
		corePublish()
	case "core_subscribe":
		coreSubscribe()
	case "request":
		waitForResponder()
		oneByOne(request)
	case "publish_sync":
		createStream()
		oneByOne(publish)
	case "publish_async":
		publishAsync()
	case "fetch":
		fetch()
	case "messages":
		messages(consumer(ackPolicy()))
	case "ordered":
		option = "none"
		messages(need(js.OrderedConsumer(ctx, stream, jetstream.OrderedConsumerConfig{})))
	case "consume":
		consume()
	case "kv_get":
		kv := bucket()
		oneByOne(func() error { _, err := kv.Get(ctx, "key"); return err })
	case "kv_put":
		kv := bucket()
		oneByOne(func() error { _, err := kv.Put(ctx, "key", payload); return err })
	case "object_put":
		objects(false)
	case "object_get":
		objects(true)
	case "threads_request":
		waitForResponder()
		sideBySide(request)
	case "threads_publish":
		createStream()
		sideBySide(publish)
	case "threads_double_ack":
		doubleAcks()
	default:
		check(fmt.Errorf("not a workload of this client"))
	}
	nc.Close()
}
