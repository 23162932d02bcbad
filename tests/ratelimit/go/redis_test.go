package tidegate_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// redis is a running server without other clients. It writes each change to a file before it replies, so that a killed server
// loses nothing. With `appendfsync everysec`, Redis delays the write while it synchronizes the file.
type redis struct {
	port     int
	password string
	folder   string
	process  *os.Process
}

func startRedis(t *testing.T, password string) *redis {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &redis{port: listener.Addr().(*net.TCPAddr).Port, password: password, folder: t.TempDir()}
	require.NoError(t, listener.Close())
	server.start(t)
	t.Cleanup(server.kill)
	return server
}

func (server *redis) start(t *testing.T) {
	t.Helper()
	arguments := []string{"--port", fmt.Sprint(server.port), "--bind", "127.0.0.1", "--dir", server.folder}
	arguments = append(arguments, "--save", "", "--appendonly", "yes", "--appendfsync", "no")
	if server.password != "" {
		arguments = append(arguments, "--requirepass", server.password)
	}
	command := exec.Command("redis-server", arguments...)
	require.NoError(t, command.Start())
	server.process = command.Process
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", server.port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, 20*time.Second, 20*time.Millisecond)
}

func (server *redis) kill() {
	_ = server.process.Kill()
	_, _ = server.process.Wait()
}

// store returns the store in the words of the rule file, for two instances, with the time that Redis has for a decision.
func (server *redis) store(timeout time.Duration) string {
	credentials := ""
	if server.password != "" {
		credentials = ":" + server.password + "@"
	}
	url := fmt.Sprintf("redis://%s127.0.0.1:%d", credentials, server.port)
	return fmt.Sprintf("{ url: %q, timeout: %v, min_gateways: 2 }", url, timeout)
}
