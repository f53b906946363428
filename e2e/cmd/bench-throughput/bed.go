package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

const (
	namespace = "bench"
	driver    = "disk.home.test"
	realClass = "home-wait"

	// rate is a request rate at which kube-controller-manager holds nothing up.
	rate = 500
	// readyTimeout bounds the start of a program.
	readyTimeout = 30 * time.Second
)

// bed is a control plane with many nodes, Lodestone's programs, and the extender that
// answers at once.
type bed struct {
	cluster *testbed.Cluster
	client  kubernetes.Interface
	storage *fakeprovisioner.Provisioner
	placed  *placement

	ours, instant string // prefixes of the extenders' verbs
	stopInstant   func()
	rounds        int
}

func newBed(ctx context.Context, o options) (*bed, error) {
	say("starting a control plane with %d nodes", o.nodes)
	clusters, err := testbed.Start(ctx, testbed.Config{
		Name: "home", ControllerManagerQPS: rate, ControllerManagerBurst: 2 * rate,
		// Nobody plays the nodes.
		NodeGracePeriod: 10 * time.Hour,
	})
	if err != nil {
		return nil, err
	}
	b := &bed{cluster: clusters[0], stopInstant: func() {}}
	if err := b.start(ctx, o); err != nil {
		b.stop()
		return nil, err
	}
	return b, nil
}

func (b *bed) start(ctx context.Context, o options) error {
	config := b.cluster.AdminConfig()
	config.ContentType = runtime.ContentTypeProtobuf
	var err error
	if b.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	nodes := make([]fakekubelet.Node, o.nodes)
	for i := range nodes {
		nodes[i] = fakekubelet.Node{Name: fmt.Sprintf("node-%d.home.example.com", i), Drivers: map[string]int32{driver: 0}}
	}
	if err := fakekubelet.Register(ctx, config, nodes...); err != nil {
		return err
	}
	if _, err := b.cluster.Kubectl(ctx, "", "apply", "-k", filepath.Join(fabric.Root(), "deploy", "base")); err != nil {
		return fmt.Errorf("install Lodestone: %w", err)
	}
	if _, err := b.cluster.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/remoteclusters.lodestone.dev",
		"--timeout=30s"); err != nil {
		return fmt.Errorf("wait for the custom resources: %w", err)
	}
	if err := b.cluster.MakeNamespace(ctx, namespace); err != nil {
		return err
	}
	if err := b.serveRealClass(ctx); err != nil {
		return err
	}
	if b.placed, err = watchPlacement(ctx, b.client); err != nil {
		return err
	}
	if b.instant, b.stopInstant, err = startInstant(ctx); err != nil {
		return err
	}
	return b.startPrograms(ctx, o)
}

// serveRealClass starts the real provisioner, whose class is the default.
func (b *bed) serveRealClass(ctx context.Context) (err error) {
	if b.storage, err = fakeprovisioner.Start(ctx, b.cluster.AdminConfig(), driver); err != nil {
		return fmt.Errorf("start the real storage: %w", err)
	}
	class := b.storage.Class(realClass, storagev1.VolumeBindingWaitForFirstConsumer)
	class.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	if _, err := b.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the real class: %w", err)
	}
	return nil
}

// startPrograms starts the extender and the provisioner with the rights of their
// ServiceAccounts. They run in all rounds, asked or not.
func (b *bed) startPrograms(ctx context.Context, o options) error {
	listen, err := b.cluster.ReserveAddress()
	if err != nil {
		return fmt.Errorf("find an address for the extender: %w", err)
	}
	b.ours = "http://" + listen
	if err := b.startProgram(ctx, "extender", o.extender, "--listen="+listen, "--shutdown-grace=0s"); err != nil {
		return err
	}
	return b.startProgram(ctx, "provisioner", o.provisioner, "--leader-elect=false")
}

func (b *bed) startProgram(ctx context.Context, name, path string, flags ...string) error {
	if path == "" {
		path = filepath.Join(filepath.Dir(b.cluster.LogDirectory()), "lodestone-"+name)
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./"+name)
		build.Dir = fabric.Root()
		if output, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build the %s: %w\n%s", name, err, output)
		}
	}
	content, err := b.cluster.ServiceAccountKubeconfig(ctx, fabric.System, "lodestone-"+name)
	if err != nil {
		return err
	}
	kubeconfig, err := b.cluster.WriteFile(name+".kubeconfig", content)
	if err != nil {
		return err
	}
	status, err := b.cluster.ReserveAddress()
	if err != nil {
		return fmt.Errorf("find an address for the %s: %w", name, err)
	}
	program, err := b.cluster.StartProgram("lodestone-"+name, path, append(flags, "--kubeconfig="+kubeconfig, "--http-address="+status)...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	return program.AwaitHTTP(ctx, "http://"+status+"/readyz")
}

// stop ends all that the bed has started.
func (b *bed) stop() {
	if b.storage != nil {
		b.storage.Stop()
	}
	b.stopInstant()
	b.cluster.Stop()
}

// answerInstantly is the least that an extender can do: it decodes nothing, lets all
// nodes pass in filter by handing their names back, and scores none.
func answerInstantly(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := []byte("[]")
	if r.URL.Path == "/filter" {
		// The names are the last of the request's fields.
		at := bytes.LastIndex(body, []byte(`"NodeNames":`))
		if at < 0 {
			http.Error(w, "the request has no node names", http.StatusBadRequest)
			return
		}
		answer = append([]byte("{"), body[at:]...)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	// A scheduler that is gone is noticed by the benchmark.
	_, _ = w.Write(answer)
}

// startInstant starts that process and returns the prefix of its verbs.
func startInstant(ctx context.Context) (url string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, fmt.Errorf("find own program: %w", err)
	}
	cmd := exec.CommandContext(ctx, self, "-instant")
	input, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, fmt.Errorf("prepare the instant extender: %w", err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, fmt.Errorf("prepare the instant extender: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("start the instant extender: %w", err)
	}
	stop = func() {
		_ = input.Close()
		_ = cmd.Wait()
	}
	address, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		stop()
		return "", nil, fmt.Errorf("wait for the instant extender: %w", err)
	}
	return "http://" + strings.TrimSpace(address), stop, nil
}
