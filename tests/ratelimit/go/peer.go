// Package tidegate starts Tidegate with files of descriptors, asks it, and records what it answers. It is compiled in the
// tree of envoyproxy/ratelimit, as src/tidegate.
package tidegate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// callTimeout bounds a call on a busy machine.
const callTimeout = 10 * time.Second

// Options are the settings of a Tidegate.
type Options struct {
	// Store is the store in the words of the rule file.
	Store string
	// Algorithm is the algorithm of all limits.
	Algorithm string
	// Files are the contents of files of envoyproxy/ratelimit.
	Files []string
	// Switches are lines of the rule file below `service`.
	Switches []string
}

// Service is a running Tidegate. main.py ends it with the tests.
type Service struct {
	Conn *grpc.ClientConn
	// Folder has the files of descriptors.
	Folder string
	// Process is the process, for signals.
	Process *os.Process
}

// Memory starts Tidegate with limits in its memory.
func Memory(files ...string) (*Service, error) {
	return Start(Options{Store: "memory", Algorithm: "token_bucket", Files: files})
}

// Start starts Tidegate. The error has the text of Tidegate if it rejects the files.
func Start(options Options) (*Service, error) {
	folder, rules := write(options)
	command := exec.Command(os.Getenv("TIDEGATE"), "run", "-c", rules, "--workers", "1")
	output, err := command.StderrPipe()
	must(err)
	must(command.Start())
	log := ""
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		log += lines.Text() + "\n"
		if _, address, found := strings.Cut(lines.Text(), "rate limit service on grpc://"); found {
			go keep(lines, filepath.Join(filepath.Dir(folder), "log"))
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			must(err)
			return &Service{Conn: conn, Folder: folder, Process: command.Process}, nil
		}
	}
	_ = command.Wait()
	return nil, errors.New(log)
}

func write(options Options) (folder string, rules string) {
	root, err := os.MkdirTemp(os.Getenv("TIDEGATE_FOLDER"), "service")
	must(err)
	folder = filepath.Join(root, "config")
	must(os.Mkdir(folder, 0o755))
	for number, text := range options.Files {
		must(os.WriteFile(filepath.Join(folder, fmt.Sprintf("%d.yaml", number)), []byte(text), 0o644))
	}
	text := fmt.Sprintf("admin: off\nstore: %s\nservice:\n  grpc: 127.0.0.1:0\n  descriptors: %q\n  algorithm: %s\n",
		options.Store, "?"+folder+"/*.yaml", options.Algorithm)
	for _, line := range options.Switches {
		text += "  " + line + "\n"
	}
	rules = filepath.Join(root, "rules.yaml")
	must(os.WriteFile(rules, []byte(text), 0o644))
	return folder, rules
}

// keep writes the rest of the log into a file, so that Tidegate never waits for the pipe.
func keep(lines *bufio.Scanner, path string) {
	file, err := os.Create(path)
	must(err)
	for lines.Scan() {
		_, _ = fmt.Fprintln(file, lines.Text())
	}
}

// Ask calls ShouldRateLimit.
func (service *Service) Ask(request *pb.RateLimitRequest) (*pb.RateLimitResponse, error) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	response, err := pb.NewRateLimitServiceClient(service.Conn).ShouldRateLimit(ctx, request)
	if err != nil {
		return nil, err
	}
	return proto.Clone(response).(*pb.RateLimitResponse), nil
}

// Record writes a comparison into the list of main.py: the test, `same` or a fixed word for the difference, and details.
func Record(word string, details string) {
	file, err := os.OpenFile(os.Getenv("TIDEGATE_RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	must(err)
	details = strings.Join(strings.Fields(details), " ")
	_, err = fmt.Fprintf(file, "%s\t%s\t%s\n", test(), word, details)
	must(err)
	must(file.Close())
}

// test returns the test of envoyproxy/ratelimit that is running: the test function among the callers.
func test() string {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for {
		frame, more := frames.Next()
		folder, name, _ := strings.Cut(filepath.Base(frame.Function), "_test.")
		if strings.HasPrefix(name, "Test") {
			name, _, _ = strings.Cut(name, ".")
			return folder + "/" + name
		}
		if !more {
			return "unknown"
		}
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
