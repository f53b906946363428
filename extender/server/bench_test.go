package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// discard is a response that nobody reads.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkFilter measures the handler alone; e2e/cmd/bench-extender measures it
// with its client, beside a yardstick.
func BenchmarkFilter(b *testing.B) {
	for _, cached := range []int{1_000, 50_000} {
		s := newServer()
		for i := range 5000 {
			s.View.Nodes.Set(fmt.Sprintf("node-%d", i), keys.Home)
			if i%10 == 0 {
				s.View.Nodes.Set(fmt.Sprintf("node-%d", i), "west")
			}
		}
		s.View.Classes.Set("lodestone", &snapshot.Class{})
		s.View.Clusters.Set("west", &snapshot.Cluster{Ready: true, Offered: []v1alpha1.OfferedClass{{Name: "standard", Default: true}}})
		for i := range cached {
			s.View.Claims.Set(fmt.Sprintf("app/claim-%d", i), &snapshot.Claim{UID: fmt.Sprint(i), ClassName: "lodestone"})
		}
		handler := s.Handler()
		for _, nodes := range []int{1, 100, 500, 5000} {
			for _, claims := range []int{0, 1, 4} {
				b.Run(fmt.Sprintf("cached=%d/nodes=%d/claims=%d", cached, nodes, claims), func(b *testing.B) {
					body := filterBody(b, nodes, claims)
					b.ReportAllocs()
					for b.Loop() {
						request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/filter", bytes.NewReader(body))
						require.NoError(b, err)
						handler.ServeHTTP(&discard{header: http.Header{}}, request)
					}
				})
			}
		}
	}
}

func filterBody(b *testing.B, nodes, claims int) []byte {
	b.Helper()
	names := make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("node-%d", i)
	}
	mounted := make([]string, claims)
	for i := range mounted {
		mounted[i] = fmt.Sprintf("claim-%d", i)
	}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith(mounted...), NodeNames: &names})
	require.NoError(b, err)
	return body
}

// BenchmarkFilterOfAClosedNamespace measures what a pod without claims costs that
// may not leave home, beside one that may.
func BenchmarkFilterOfAClosedNamespace(b *testing.B) {
	for _, open := range []bool{true, false} {
		s := newServer()
		s.View.Clusters.Set("west", &snapshot.Cluster{Ready: true})
		for i := range 5000 {
			s.View.Nodes.Set(fmt.Sprintf("node-%d", i), keys.Home)
		}
		if !open {
			s.View.Namespaces.Set("app", nil)
		}
		handler, body := s.Handler(), filterBody(b, 5000, 0)
		b.Run(fmt.Sprintf("open=%v", open), func(b *testing.B) {
			for b.Loop() {
				request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "/filter", bytes.NewReader(body))
				require.NoError(b, err)
				handler.ServeHTTP(&discard{header: http.Header{}}, request)
			}
		})
	}
}
