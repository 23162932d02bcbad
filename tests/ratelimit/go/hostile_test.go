package tidegate_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/envoyproxy/ratelimit/src/tidegate"
)

const (
	// attackTime is the length of all attacks together.
	attackTime = 3 * time.Second
	// maxGrowth bounds the memory of the process: 32 MiB of incomplete calls, the buffers of the connections, and what the
	// allocator keeps.
	maxGrowth = 96 << 20
)

// attack sends frames on a new connection until the server closes it, or the time is over.
type attack func(frames *http2.Framer, random *rand.Rand) error

var attacks = map[string]attack{
	"10,000 descriptors of 64 KiB": func(frames *http2.Framer, _ *rand.Rand) error {
		return body(frames, 10_000*64<<10, bytes.Repeat(descriptorOf(64<<10), 16))
	},
	"a list of empty descriptors": func(frames *http2.Framer, _ *rand.Rand) error {
		message := bytes.Repeat([]byte{0x12, 0}, 500_000)
		return body(frames, len(message), message)
	},
	"random bytes": func(frames *http2.Framer, random *rand.Rand) error {
		message := make([]byte, 1+random.Intn(60_000))
		_, _ = random.Read(message)
		return body(frames, len(message), message)
	},
	"streams without an end": func(frames *http2.Framer, random *rand.Rand) error {
		return open(frames, false)
	},
	"streams that are reset at once": func(frames *http2.Framer, _ *rand.Rand) error {
		if err := open(frames, false); err != nil {
			return err
		}
		return frames.WriteRSTStream(current(frames), http2.ErrCodeCancel)
	},
	"headers without an end": func(frames *http2.Framer, _ *rand.Rand) error {
		if err := open(frames, true); err != nil {
			return err
		}
		for {
			if err := frames.WriteContinuation(current(frames), false, block("x-filler", strings.Repeat("x", 8_000))); err != nil {
				return err
			}
		}
	},
	"frames of nothing": func(frames *http2.Framer, _ *rand.Rand) error {
		return frames.WriteRawFrame(http2.FrameType(0xee), 0, 0, make([]byte, 16_000))
	},
}

// streams has the last stream of each connection.
var streams sync.Map

func current(frames *http2.Framer) uint32 {
	id, _ := streams.LoadOrStore(frames, uint32(1))
	return id.(uint32)
}

// TestHostile runs all attacks against one worker while an honest client makes calls: none fails, and the memory stays flat.
// A client of another instance shows how busy the machine is.
func TestHostile(t *testing.T) {
	service, other := memory(t, limiterFile), memory(t, limiterFile)
	ask(t, service, "domain", 0, descriptor("key=honest"))
	before := peak(t, service)
	end := time.Now().Add(attackTime)
	var running sync.WaitGroup
	for _, attack := range attacks {
		running.Go(func() { repeat(service, attack, end) })
	}
	var times, elsewhere []time.Duration
	running.Go(func() { elsewhere = honest(t, other, end) })
	times = honest(t, service, end)
	running.Wait()
	growth := peak(t, service) - before
	fmt.Printf("hostile: memory grew by %d KiB at most; %s; of the other instance: %s\n",
		growth>>10, summary(times), summary(elsewhere))
	require.Less(t, growth, maxGrowth)
}

func summary(times []time.Duration) string {
	slices.Sort(times)
	at := func(share int) time.Duration { return times[len(times)*share/100].Round(10 * time.Microsecond) }
	return fmt.Sprintf("%d honest calls, p50 %v, p99 %v", len(times), at(50), at(99))
}

// repeat starts an attack again on a new connection whenever the server has closed the old one.
func repeat(service *tidegate.Service, attack attack, end time.Time) {
	random := rand.New(rand.NewSource(1))
	for time.Now().Before(end) {
		conn, err := net.Dial("tcp", service.Conn.Target())
		if err != nil {
			time.Sleep(time.Millisecond)
			continue
		}
		_ = conn.SetDeadline(end)
		go drain(conn)
		if _, err := conn.Write([]byte(http2.ClientPreface)); err == nil {
			frames := http2.NewFramer(conn, nil)
			for err = frames.WriteSettings(); err == nil && time.Now().Before(end); {
				err = attack(frames, random)
			}
			streams.Delete(frames)
		}
		_ = conn.Close()
	}
}

// drain reads what the server sends, so that it never waits for the attacker.
func drain(conn net.Conn) {
	buffer := make([]byte, 16<<10)
	for {
		if _, err := conn.Read(buffer); err != nil {
			return
		}
	}
}

// open starts a call on a new stream.
func open(frames *http2.Framer, endless bool) error {
	id := current(frames)
	streams.Store(frames, id+2)
	head := http2.HeadersFrameParam{StreamID: id + 2, EndHeaders: !endless, BlockFragment: block(
		":method", "POST", ":scheme", "http", ":authority", "service",
		":path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
		"content-type", "application/grpc", "te", "trailers")}
	return frames.WriteHeaders(head)
}

// body sends a call with a message of this length, which begins with these bytes. It ignores flow control.
func body(frames *http2.Framer, length int, message []byte) error {
	if err := open(frames, false); err != nil {
		return err
	}
	prefix := make([]byte, 5)
	binary.BigEndian.PutUint32(prefix[1:], uint32(length))
	data := append(prefix, message...)
	for len(data) > 0 {
		part := data[:min(len(data), 16<<10)]
		data = data[len(part):]
		if err := frames.WriteData(current(frames), len(data) == 0, part); err != nil {
			return err
		}
	}
	return nil
}

// descriptorOf returns the field of a descriptor whose value has this length.
func descriptorOf(length int) []byte {
	entry := append([]byte{0x0a, 1, 'k', 0x12}, binary.AppendUvarint(nil, uint64(length))...)
	entry = append(entry, bytes.Repeat([]byte{'x'}, length)...)
	inner := append(binary.AppendUvarint([]byte{0x0a}, uint64(len(entry))), entry...)
	return append(binary.AppendUvarint([]byte{0x12}, uint64(len(inner))), inner...)
}

func block(fields ...string) []byte {
	var buffer bytes.Buffer
	encoder := hpack.NewEncoder(&buffer)
	for i := 0; i < len(fields); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1], Sensitive: true})
	}
	return buffer.Bytes()
}

// honest makes calls until the end. None may fail.
func honest(t *testing.T, service *tidegate.Service, end time.Time) (times []time.Duration) {
	for time.Now().Before(end) {
		begin := time.Now()
		ask(t, service, "domain", 0, descriptor("key=honest"))
		times = append(times, time.Since(begin))
		time.Sleep(5 * time.Millisecond)
	}
	return times
}

// peak returns the largest resident memory so far, in bytes.
func peak(t *testing.T, service *tidegate.Service) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", service.Process.Pid))
	require.NoError(t, err)
	_, line, _ := strings.Cut(string(status), "VmHWM:")
	kilobytes, err := strconv.Atoi(strings.Fields(line)[0])
	require.NoError(t, err)
	return kilobytes << 10
}
