package tidegate_test

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand"
	"net"
	"net/http"
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
	method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	// attackTime is the length of all attacks together.
	attackTime = 3 * time.Second
	// maxGrowth bounds the memory of the process: 32 MiB of incomplete calls, the buffers of the connections, and what the
	// allocator keeps.
	maxGrowth = 96 << 20
)

// attack sends frames on a new connection until the server closes it, or the time is over.
type attack func(frames *http2.Framer) error

var attacks = map[string]attack{
	"streams without an end": func(frames *http2.Framer) error { return open(frames, false) },
	"streams that are reset at once": func(frames *http2.Framer) error {
		if err := open(frames, false); err != nil {
			return err
		}
		return frames.WriteRSTStream(current(frames), http2.ErrCodeCancel)
	},
	"headers without an end": func(frames *http2.Framer) error {
		if err := open(frames, true); err != nil {
			return err
		}
		for {
			if err := frames.WriteContinuation(current(frames), false, block("x-filler", strings.Repeat("x", 8_000))); err != nil {
				return err
			}
		}
	},
	"frames of nothing": func(frames *http2.Framer) error {
		return frames.WriteRawFrame(http2.FrameType(0xee), 0, 0, make([]byte, 16_000))
	},
}

// bodies are the messages of calls. Each call sends its message as fast as the flow control of the server permits.
var bodies = map[string]func() (length int, message io.Reader){
	"10,000 descriptors of 64 KiB": func() (int, io.Reader) {
		return 10_000 * len(largeDescriptor), &repeated{text: largeDescriptor, left: 10_000}
	},
	"a list of empty descriptors": func() (int, io.Reader) {
		return maxMessage, &repeated{text: []byte{0x12, 0}, left: maxMessage / 2}
	},
	"a list of empty entries": func() (int, io.Reader) {
		entries := bytes.Repeat([]byte{0x0a, 0}, maxMessage/2-8)
		message := append(binary.AppendUvarint([]byte{0x12}, uint64(len(entries))), entries...)
		return len(message), bytes.NewReader(message)
	},
	"random bytes": func() (int, io.Reader) {
		message := make([]byte, 1+rand.Intn(60_000))
		_, _ = crand.Read(message)
		return len(message), bytes.NewReader(message)
	},
}

// maxMessage is less than the longest message of docs/service.md.
const maxMessage = 1<<20 - 16

var largeDescriptor = descriptorOf(64 << 10)

// repeated reads the same bytes several times.
type repeated struct {
	text []byte
	at   int
	left int
}

func (this *repeated) Read(buffer []byte) (total int, err error) {
	for total < len(buffer) && this.left > 0 {
		count := copy(buffer[total:], this.text[this.at:])
		total += count
		this.at += count
		if this.at == len(this.text) {
			this.at, this.left = 0, this.left-1
		}
	}
	if total == 0 {
		err = io.EOF
	}
	return total, err
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
	answers := sync.Map{}
	for name, body := range bodies {
		running.Go(func() { answers.Store(name, send(service, body, end)) })
	}
	var times, elsewhere []time.Duration
	running.Go(func() { elsewhere = honest(t, other, end) })
	times = honest(t, service, end)
	running.Wait()
	growth := peak(t, service) - before
	fmt.Printf("hostile: memory grew by %d KiB at most; %s; of the other instance: %s\n",
		growth>>10, summary(times), summary(elsewhere))
	answers.Range(func(name, counts any) bool {
		fmt.Printf("hostile: %v: %v\n", name, counts)
		return true
	})
	require.Less(t, growth, maxGrowth)
}

func summary(times []time.Duration) string {
	slices.Sort(times)
	at := func(share int) time.Duration { return times[len(times)*share/100].Round(10 * time.Microsecond) }
	return fmt.Sprintf("%d honest calls, p50 %v, p99 %v", len(times), at(50), at(99))
}

// repeat starts an attack again on a new connection whenever the server has closed the old one.
func repeat(service *tidegate.Service, attack attack, end time.Time) {
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
				err = attack(frames)
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
		":path", method,
		"content-type", "application/grpc", "te", "trailers")}
	return frames.WriteHeaders(head)
}

// send makes calls with such messages until the end. Returns how often each gRPC status was the answer.
func send(service *tidegate.Service, body func() (int, io.Reader), end time.Time) map[string]int {
	dial := func(ctx context.Context, network, address string, _ *tls.Config) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	client := http.Client{Transport: &http2.Transport{AllowHTTP: true, DialTLSContext: dial}}
	url := "http://" + service.Conn.Target() + method
	counts := map[string]int{}
	for time.Now().Before(end) {
		length, message := body()
		prefix := binary.BigEndian.AppendUint32([]byte{0}, uint32(length))
		ctx, cancel := context.WithDeadline(context.Background(), end)
		request, _ := http.NewRequestWithContext(ctx, "POST", url, io.MultiReader(bytes.NewReader(prefix), message))
		request.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
		if response, err := client.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
			status := response.Trailer.Get("Grpc-Status") + response.Header.Get("Grpc-Status")
			counts["status "+status]++
		} else if ctx.Err() == nil {
			counts["no answer"]++
		}
		cancel()
	}
	return counts
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
