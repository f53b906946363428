// Package scheduling_test tries the extender with real kube-schedulers. The test
// stands in for the provisioner: it writes what that program would, and looks at
// the node that kube-scheduler selects for a claim.
package scheduling_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/extender/app"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

const (
	system = "lodestone-system"
	class  = "lodestone"

	long  = 60 * time.Second
	often = 20 * time.Millisecond
)

// bed is a home cluster whose kube-scheduler calls an extender: with node names,
// or with whole nodes.
type bed struct {
	*testbed.Cluster
	clusters *clients.RemoteClusters
	listener net.Listener
}

// beds are shared by the tests, which differ in their namespaces and remote
// clusters.
var beds = map[string]*bed{}

func TestMain(m *testing.M) {
	testbed.Main(m, start)
}

func start(ctx context.Context) error {
	names, nodes := &bed{}, &bed{}
	for _, b := range []*bed{names, nodes} {
		var err error
		if b.listener, err = (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return fmt.Errorf("find a port for the extender: %w", err)
		}
	}
	wholeNodes, err := schedulerOfWholeNodes(nodes.url())
	if err != nil {
		return err
	}
	defer os.Remove(wholeNodes)
	started, err := testbed.Start(ctx,
		testbed.Config{Name: "names", Extenders: []string{names.url()}},
		testbed.Config{Name: "nodes", SchedulerConfig: wholeNodes})
	if err != nil {
		return err
	}
	names.Cluster, nodes.Cluster = started[0], started[1]
	for mode, b := range map[string]*bed{"names mode": names, "node mode": nodes} {
		if err := b.install(ctx); err != nil {
			return err
		}
		beds[mode] = b
	}
	return nil
}

func (b *bed) url() string { return "http://" + b.listener.Addr().String() }

func schedulerOfWholeNodes(url string) (string, error) {
	file, err := os.CreateTemp("", "scheduler-*.yaml")
	if err != nil {
		return "", fmt.Errorf("write the scheduler configuration: %w", err)
	}
	_, err = fmt.Fprintf(file, `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- {urlPrefix: %q, filterVerb: filter, prioritizeVerb: prioritize, preemptVerb: preempt, weight: 3, nodeCacheCapable: false, ignorable: true}
`, url)
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return "", fmt.Errorf("write the scheduler configuration: %w", err)
	}
	return file.Name(), nil
}

// install applies the manifests, plays two home nodes, and starts the extender
// with the rights of its ServiceAccount.
func (b *bed) install(ctx context.Context) error {
	base, err := b.Kustomization("base")
	if err != nil {
		return err
	}
	if _, err := b.Kubectl(ctx, "", "apply", "-k", base); err != nil {
		return err
	}
	if _, err := b.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/remoteclusters.lodestone.dev", "--timeout=60s"); err != nil {
		return err
	}
	if b.clusters, err = clients.NewRemoteClusters(b.AdminConfig()); err != nil {
		return err
	}
	if _, err = fakekubelet.Start(ctx,
		fakekubelet.Options{Config: b.AdminConfig(), Nodes: []fakekubelet.Node{{Name: "home-1"}, {Name: "home-2"}}}); err != nil {
		return err
	}
	return b.run(ctx)
}

// run starts the extender and waits until it is ready.
func (b *bed) run(ctx context.Context) error {
	home, err := b.ServiceAccountConfig(ctx, system, "lodestone-extender")
	if err != nil {
		return err
	}
	status, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("find a port for the probes: %w", err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- app.Run(ctx, &app.Config{Home: home, Verbs: b.listener, Status: status})
	}()
	if err := awaitReady(ctx, "http://"+status.Addr().String()+"/readyz", ended); err != nil {
		return fmt.Errorf("start the extender: %w", err)
	}
	return nil
}

// virtualNode plays a node that stands for a remote cluster. No pod runs there:
// what counts is where kube-scheduler wants it.
func virtualNode(cluster string) fakekubelet.Node {
	return fakekubelet.Node{Name: "virtual-" + cluster, Labels: map[string]string{keys.Cluster: cluster}}
}

func awaitReady(ctx context.Context, url string, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(ctx, long)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return fmt.Errorf("ask for readiness: %w", err)
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			ready := response.StatusCode == http.StatusOK
			_ = response.Body.Close()
			if ready {
				return nil
			}
		}
		select {
		case err := <-ended:
			return fmt.Errorf("it ended: %w", err)
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(often):
		}
	}
}

// stage is a namespace and a remote cluster of one test.
type stage struct {
	*bed
	t         *testing.T
	namespace string
	// remote is the ID of the remote cluster, node the name of its virtual node.
	remote, node string
}

// newStage makes an offloaded namespace, and a virtual node for a cluster that
// nothing is known of yet.
func newStage(t *testing.T, b *bed) *stage {
	t.Helper()
	s := &stage{bed: b, t: t, namespace: testbed.Namespace(t, b.Cluster), remote: "remote-" + rand.String(6)}
	node := virtualNode(s.remote)
	s.node = node.Name
	_, err := fakekubelet.Start(t.Context(), fakekubelet.Options{Config: b.AdminConfig(), Nodes: []fakekubelet.Node{node}})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = b.Client().CoreV1().Nodes().Delete(context.Background(), s.node, metav1.DeleteOptions{})
		_ = b.clusters.Delete(context.Background(), s.remote, metav1.DeleteOptions{})
	})
	s.label(keys.OffloadEnabled)
	return s
}

func (s *stage) label(offload string) {
	s.t.Helper()
	must.Kubectl(s.t, s, "", "label", "namespace", s.namespace, "--overwrite", keys.Offload+"="+offload)
}

// join makes the remote cluster known, as ready or not, with these real classes.
func (s *stage) join(ready metav1.ConditionStatus, offered ...v1alpha1.OfferedClass) {
	s.t.Helper()
	ctx := s.t.Context()
	cluster, err := s.clusters.Get(ctx, s.remote, metav1.GetOptions{})
	if err != nil {
		cluster = must.Create(s.t, s.clusters, &v1alpha1.RemoteCluster{
			ObjectMeta: metav1.ObjectMeta{Name: s.remote},
			Spec:       v1alpha1.RemoteClusterSpec{KubeconfigSecretRef: v1alpha1.SecretKeyRef{Namespace: system, Name: s.remote}},
		})
	}
	cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Ready, Status: ready, Reason: "Test", LastTransitionTime: metav1.Now()}}
	cluster.Status.StorageClasses = offered
	must.UpdateStatus(s.t, s.clusters, cluster)
}

// touch changes a claim as the provisioner does when a cluster's state has
// changed, which makes kube-scheduler try the claim's pods again.
func (s *stage) touch(claim string) {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, keys.ClusterChanged, time.Now().Format(time.RFC3339Nano))
	_, err := s.Client().CoreV1().PersistentVolumeClaims(s.namespace).Patch(s.t.Context(), claim, types.MergePatchType, []byte(patch),
		metav1.PatchOptions{})
	assert.NoError(s.t, err)
}

func (s *stage) claim(name string, annotations map[string]string,
	changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	s.t.Helper()
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: ptr.To(class),
			Resources:        size(),
		},
	}
	for _, change := range changes {
		change(claim)
	}
	return must.Create(s.t, s.Client().CoreV1().PersistentVolumeClaims(s.namespace), claim)
}

// volume gives a claim its volume in a cluster, as the provisioner would.
func (s *stage) volume(claim *corev1.PersistentVolumeClaim, cluster string, changes ...func(*corev1.PersistentVolume)) {
	s.t.Helper()
	ctx := s.t.Context()
	name := "pvc-" + string(claim.UID)
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      size().Requests,
			StorageClassName:              *claim.Spec.StorageClassName,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			ClaimRef: &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace,
				Name: claim.Name, UID: claim.UID},
			NodeAffinity:           locality.Affinity(cluster, nil),
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: keys.Driver, VolumeHandle: name}},
		},
	}
	for _, change := range changes {
		change(volume)
	}
	must.Create(s.t, s.Client().CoreV1().PersistentVolumes(), volume)
	s.t.Cleanup(func() {
		_ = s.Client().CoreV1().PersistentVolumes().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
	require.Eventually(s.t, func() bool {
		bound, err := s.Client().CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		return err == nil && bound.Status.Phase == corev1.ClaimBound
	}, long, often, "claim %s must bind", claim.Name)
}

func size() corev1.VolumeResourceRequirements {
	return corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}}
}

// affinity is that of pods that may go to the stage's virtual node and, unless
// remoteOnly, to the home nodes.
func (s *stage) affinity(remoteOnly bool) *corev1.Affinity {
	terms := []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: keys.Cluster,
		Operator: corev1.NodeSelectorOpIn, Values: []string{s.remote}}}}}
	if !remoteOnly {
		terms = append(terms,
			corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: keys.Cluster,
				Operator: corev1.NodeSelectorOpDoesNotExist}}})
	}
	return &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}},
	}
}

// pod makes a pod that mounts claims. It may go to the stage's virtual node and,
// unless remoteOnly, to the home nodes.
func (s *stage) pod(pod corev1.Pod, remoteOnly bool, claims ...string) {
	s.t.Helper()
	pod.Spec.Affinity = s.affinity(remoteOnly)
	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{Name: "main", Image: "none"}}
	}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	var err error
	// Admission sees a new PriorityClass a moment later.
	require.Eventually(s.t, func() bool {
		_, err = s.Client().CoreV1().Pods(s.namespace).Create(s.t.Context(), &pod, metav1.CreateOptions{})
		return !apierrors.IsForbidden(err)
	}, long, often, "the pod is not admitted")
	require.NoError(s.t, err)
}
