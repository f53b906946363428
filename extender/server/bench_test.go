package server_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/lodestone-storage/lodestone/extender/server"
	"github.com/lodestone-storage/lodestone/extender/snapshot"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// discard is a response that nobody reads.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// processorTime is what this process has used, with its garbage collector. Unlike wall-clock time
// it does not depend on other programs.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// serve measures one call of the handler alone; e2e/cmd/bench-extender measures it
// with its client, beside a yardstick.
func serve(b *testing.B, handler http.Handler, verb string, body []byte) {
	b.Helper()
	b.ReportAllocs()
	b.SetBytes(int64(len(body)))
	reader := bytes.NewReader(body)
	request, err := http.NewRequestWithContext(b.Context(), http.MethodPost, verb, reader)
	require.NoError(b, err)
	before := processorTime(b)
	for b.Loop() {
		reader.Reset(body)
		handler.ServeHTTP(&discard{header: http.Header{}}, request)
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// largeServer has 5,000 nodes, a tenth of them in a remote cluster, and as many claims without a
// volume.
func largeServer(claims int) *server.Server {
	s := newServer()
	nodes := map[string]string{}
	for i := range 5000 {
		nodes[fmt.Sprintf("node-%d", i)] = keys.Home
		if i%10 == 0 {
			nodes[fmt.Sprintf("node-%d", i)] = "west"
		}
	}
	s.View.Nodes.Replace(nodes)
	s.View.Classes.Set("lodestone", &snapshot.Class{})
	s.View.Clusters.Set("west", &snapshot.Cluster{Ready: true, Offered: []v1alpha1.OfferedClass{{Name: "standard", Default: true}}})
	for i := range claims {
		s.View.Claims.Set(fmt.Sprintf("app/claim-%d", i), &snapshot.Claim{UID: fmt.Sprint(i), ClassName: "lodestone"})
	}
	return s
}

func BenchmarkFilter(b *testing.B) {
	for _, cached := range []int{1_000, 50_000} {
		handler := largeServer(cached).Handler()
		for _, nodes := range []int{1, 100, 500, 5000} {
			for _, claims := range []int{0, 1, 4} {
				b.Run(fmt.Sprintf("cached=%d/nodes=%d/claims=%d", cached, nodes, claims), func(b *testing.B) {
					serve(b, handler, "/filter", callBody(b, nodes, claims))
				})
			}
		}
	}
}

// BenchmarkFilterWithAttachLimits measures a claim for which a driver would make a volume whose
// attachments each node limits, in addition to the volumes of the node's pods.
func BenchmarkFilterWithAttachLimits(b *testing.B) {
	s := largeServer(1)
	s.View.StorageClasses().Set("ssd", &storagev1.StorageClass{
		ObjectMeta:  metav1.ObjectMeta{Name: "ssd", Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: "csi.example",
	})
	for i := range 5000 {
		node := fmt.Sprintf("node-%d", i)
		s.View.Limits.Set(node, snapshot.Limits{"csi.example": 25})
		for pod := range 5 {
			key := fmt.Sprintf("app/pod-%d-%d", i, pod)
			s.View.Assigned.Set(key, snapshot.Use{Node: node, Claims: []string{key}})
		}
	}
	s.View.InFlight.Set("app/other", snapshot.Use{Node: "node-1", Claims: []string{"app/other"}})
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { serve(b, s.Handler(), "/filter", callBody(b, nodes, 1)) })
	}
}

// BenchmarkFilterThatRefuses measures a pod whose data is in the cluster of a tenth of the nodes:
// all others are refused with a sentence.
func BenchmarkFilterThatRefuses(b *testing.B) {
	s := largeServer(1)
	s.View.Claims.Set("app/claim-0", &snapshot.Claim{UID: "uid", VolumeName: "pv"})
	for _, nodes := range []int{500, 5000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { serve(b, s.Handler(), "/filter", callBody(b, nodes, 1)) })
	}
}

func BenchmarkPrioritize(b *testing.B) {
	s := largeServer(1)
	s.View.Claims.Set("app/claim-0", &snapshot.Claim{UID: "uid", VolumeName: "pv"})
	for _, nodes := range []int{500, 5000} {
		for _, claims := range []int{0, 1} {
			b.Run(fmt.Sprintf("nodes=%d/claims=%d", nodes, claims), func(b *testing.B) {
				serve(b, s.Handler(), "/prioritize", callBody(b, nodes, claims))
			})
		}
	}
}

// BenchmarkFilterOfAClosedNamespace measures a pod without claims that may not run in remote
// clusters, compared with one that may.
func BenchmarkFilterOfAClosedNamespace(b *testing.B) {
	for _, open := range []bool{true, false} {
		s := largeServer(0)
		if !open {
			s.View.Namespaces.Set("app", nil)
		}
		b.Run(fmt.Sprintf("open=%v", open), func(b *testing.B) { serve(b, s.Handler(), "/filter", callBody(b, 5000, 0)) })
	}
}

// BenchmarkFilterOfWholeNodes measures node mode: each node takes about 14 KB.
func BenchmarkFilterOfWholeNodes(b *testing.B) {
	list := &corev1.NodeList{}
	for i := range 500 {
		node := corev1.Node{}
		node.Name = fmt.Sprintf("node-%d", i)
		node.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"),
			corev1.ResourceMemory: resource.MustParse("32Gi")}
		for k := range 50 {
			image := fmt.Sprintf("registry.example/team-%d/application@sha256:%s", k, strings.Repeat("0123456789abcdef", 4))
			node.Status.Images = append(node.Status.Images,
				corev1.ContainerImage{Names: []string{image, fmt.Sprintf("registry.example/team-%d/application:v1.2.3", k)}, SizeBytes: 123456789})
		}
		list.Items = append(list.Items, node)
	}
	body, err := json.Marshal(extenderv1.ExtenderArgs{Pod: podWith("claim-0"), Nodes: list})
	require.NoError(b, err)
	serve(b, largeServer(1).Handler(), "/filter", body)
}

func callBody(b *testing.B, nodes, claims int) []byte {
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
