package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/largecluster"
	"github.com/lodestone-storage/lodestone/e2e/measure"
	"github.com/lodestone-storage/lodestone/extender/mtls"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// program is the extender's program, running on a large cluster of its own.
type program struct {
	*measure.Process
	target  target
	cluster *largecluster.Cluster
	api     *httptest.Server
}

// startProgram starts the program on a cluster with so many claims, and waits until
// it has read them all.
func (b *bench) startProgram(ctx context.Context, claims int, flags ...string) (*program, error) {
	p := &program{cluster: largecluster.New(claims)}
	p.api = httptest.NewServer(p.cluster)
	kubeconfig, err := b.kubeconfig(p.api.URL)
	if err != nil {
		p.closeAPI()
		return nil, err
	}
	addresses, err := largecluster.FreeAddresses(ctx, 2)
	if err != nil {
		p.closeAPI()
		return nil, err
	}
	flags = append([]string{"--kubeconfig=" + kubeconfig, "--listen=" + addresses[0], "--http-address=" + addresses[1], "--shutdown-grace=0s"},
		flags...)
	p.target = target{URL: "http://" + addresses[0]}
	p.Process, err = measure.Start(ctx, func(ctx context.Context) *exec.Cmd { return exec.CommandContext(ctx, b.extender, flags...) })
	if err != nil {
		p.closeAPI()
		return nil, err
	}
	if err := p.awaitReady(ctx, "http://"+addresses[1], claims); err != nil {
		p.Stop()
		return nil, p.Failed(err)
	}
	return p, nil
}

// Stop ends the program and its API server.
func (p *program) Stop() {
	p.Process.Stop()
	p.closeAPI()
}

func (p *program) closeAPI() {
	p.api.CloseClientConnections()
	p.api.Close()
}

func (b *bench) kubeconfig(url string) (string, error) {
	b.kubeconfigs++
	path := filepath.Join(b.directory, fmt.Sprintf("kubeconfig-%d", b.kubeconfigs))
	return path, largecluster.WriteKubeconfig(path, url)
}

// awaitReady waits until the extender has read all, and checks how much that is.
func (p *program) awaitReady(ctx context.Context, status string, claims int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute, fmt.Errorf("the extender is not ready after 2 minutes"))
	defer cancel()
	for {
		if code, _, err := get(ctx, status+"/readyz"); err == nil && code == http.StatusOK {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.Done():
			return fmt.Errorf("the extender has ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
	_, metrics, err := get(ctx, status+"/metrics")
	if err != nil {
		return err
	}
	for kind, size := range map[string]int{"nodes": largecluster.Nodes, "persistentvolumeclaims": claims, "persistentvolumes": claims,
		"remoteclusters": largecluster.RemoteClusters} {
		if want := fmt.Sprintf("cached_objects{kind=%q} %s\n", kind, strconv.FormatFloat(float64(size), 'g', -1, 64)); !strings.Contains(metrics,
			want) {
			return fmt.Errorf("the extender is ready without %s", want)
		}
	}
	return nil
}

func get(ctx context.Context, url string) (int, string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", fmt.Errorf("make request: %w", err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", fmt.Errorf("ask the extender: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "", fmt.Errorf("read the extender's answer: %w", err)
	}
	return response.StatusCode, string(body), nil
}

const (
	manyClaims = 50_000
	fewClaims  = 1_000
)

func nodeNames(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = largecluster.NodeName(i)
	}
	return names
}

// mounted are the claims of pods: one that waits for a pod, and some whose volumes
// are at home.
var mounted = []int{5, 1, 2, 3}

// passing is how many of the first n nodes a pod with so many of these claims may
// run on.
func passing(n, claims int) int {
	passed := 0
	for i := range n {
		home := largecluster.ClusterOf(i) == keys.Home
		ready := largecluster.Ready(i / 10 % largecluster.RemoteClusters)
		if claims == 0 || home || (claims == 1 && ready) {
			passed++
		}
	}
	return passed
}

// newPod returns a pod of ordinary size that mounts so many of these claims.
func newPod(claims int) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: largecluster.Namespace, Name: "database-0", UID: "00000000-0000-4000-9000-000000000000",
			Labels: map[string]string{"app.kubernetes.io/name": "database", "apps.kubernetes.io/pod-index": "0",
				"controller-revision-hash": "database-6c8d9f7b5"},
			Annotations: map[string]string{"prometheus.io/scrape": "true",
				"checksum/config": "0f343b0931126a20f133d67c2b018a3b5f343b0931126a20f133d67c2b018a3b"},
		},
		Spec: corev1.PodSpec{ServiceAccountName: "database", SchedulerName: "default-scheduler"},
	}
	for i := range 3 {
		container := corev1.Container{
			Name: fmt.Sprintf("container-%d", i), Image: "registry.example.com/team/database:16.4-bookworm",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"),
				corev1.ResourceMemory: resource.MustParse("1Gi")}},
		}
		for j := range 10 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", j), Value: "a value of ordinary length"})
		}
		pod.Spec.Containers = append(pod.Spec.Containers, container)
	}
	for i := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: fmt.Sprintf("volume-%d", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: largecluster.ClaimName(mounted[i])},
		}})
	}
	return pod
}

// overTLS compares calls over TLS, with certificates on both sides, to calls over
// plain http.
func overTLS(ctx context.Context, b *bench, rounds int) ([]measure.Result, error) {
	plain, err := b.withFew(ctx)
	if err != nil {
		return nil, err
	}
	files, err := b.certificates()
	if err != nil {
		return nil, err
	}
	secured, err := b.startProgram(ctx, fewClaims,
		"--tls-cert-file="+files.server.certificate, "--tls-private-key-file="+files.server.key, "--client-ca-file="+files.authority)
	if err != nil {
		return nil, err
	}
	defer secured.Stop()
	t := target{
		URL:    strings.Replace(secured.target.URL, "http://", "https://", 1),
		CAFile: files.authority, CertFile: files.client.certificate, KeyFile: files.client.key,
	}
	var results []measure.Result
	for _, names := range []int{500, 5000} {
		securedCosts, plainCosts, err := b.sideBySide(
			side{secured.Pid(), newJob(t, names, 1)},
			side{plain.Pid(), newJob(plain.target, names, 1)}, rounds)
		if err != nil {
			return nil, err
		}
		ratio := measure.MedianRatio(securedCosts.sums(), plainCosts.sums())
		say("%d names, over TLS with client certificates to http: %s to %s, ratio %.2f", names, securedCosts, plainCosts, ratio)
		results = append(results, measure.Figure(fmt.Sprintf("filter call, %d names, 1 claim, over TLS with client certificates", names), ratio,
			"x http"))
	}
	return results, nil
}

// certificateFiles are what the two ends of a connection need.
type certificateFiles struct {
	authority      string
	server, client pairFiles
}

type pairFiles struct{ certificate, key string }

// certificates issues certificates for as long as a benchmark can run.
func (b *bench) certificates() (certificateFiles, error) {
	const life = time.Hour
	now := time.Now()
	files := certificateFiles{authority: filepath.Join(b.directory, "ca.crt")}
	authority, err := mtls.NewAuthority(now, life)
	if err != nil {
		return files, fmt.Errorf("make an authority: %w", err)
	}
	if err := os.WriteFile(files.authority, authority.CertificatePEM(), 0o600); err != nil {
		return files, fmt.Errorf("write the authority's certificate: %w", err)
	}
	for _, end := range []struct {
		files *pairFiles
		leaf  mtls.Leaf
	}{
		{&files.server, mtls.Leaf{Name: "lodestone-extender", Usage: x509.ExtKeyUsageServerAuth, Hosts: []string{"127.0.0.1"}, Life: life}},
		{&files.client, mtls.Leaf{Name: "kube-scheduler", Usage: x509.ExtKeyUsageClientAuth, Life: life}},
	} {
		pair, err := authority.Issue(now, end.leaf)
		if err != nil {
			return files, fmt.Errorf("issue a certificate for %s: %w", end.leaf.Name, err)
		}
		if *end.files, err = b.writePair(end.leaf.Name, pair); err != nil {
			return files, err
		}
	}
	return files, nil
}

func (b *bench) writePair(name string, pair *mtls.Pair) (pairFiles, error) {
	files := pairFiles{certificate: filepath.Join(b.directory, name+".crt"), key: filepath.Join(b.directory, name+".key")}
	key, err := pair.KeyPEM()
	if err != nil {
		return files, fmt.Errorf("encode the key of %s: %w", name, err)
	}
	for path, content := range map[string][]byte{files.certificate: pair.CertificatePEM(), files.key: key} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return files, fmt.Errorf("write the certificate of %s: %w", name, err)
		}
	}
	return files, nil
}
