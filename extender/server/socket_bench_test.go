package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkFilterOnASocket measures the server with its HTTP; the caller costs
// little more than its system calls.
func BenchmarkFilterOnASocket(b *testing.B) {
	listening := httptest.NewServer(largeServer(1).Handler())
	b.Cleanup(listening.Close)
	for _, nodes := range []int{1, 500, 5000} {
		for _, claims := range []int{0, 1} {
			b.Run(fmt.Sprintf("nodes=%d/claims=%d", nodes, claims), func(b *testing.B) {
				b.ReportAllocs()
				connection, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", listening.Listener.Addr().String())
				require.NoError(b, err)
				b.Cleanup(func() { _ = connection.Close() })
				answers := bufio.NewReaderSize(connection, 1<<20)
				body := string(callBody(b, nodes, claims))
				asked := []byte(call(body, len(body)))
				before := processorTime(b)
				for b.Loop() {
					_, err := connection.Write(asked)
					require.NoError(b, err)
					response, err := http.ReadResponse(answers, nil)
					require.NoError(b, err)
					_, err = io.Copy(io.Discard, response.Body)
					require.NoError(b, err)
					require.NoError(b, response.Body.Close())
				}
				b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
