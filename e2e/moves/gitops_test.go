package moves

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// web is a pod that shares its volume with others, notes that it has begun, and takes five
// seconds to end. As lines with their indentation (6).
const web = `      terminationGracePeriodSeconds: 5
      tolerations: [{key: %s, operator: Exists}]
      containers:
      - name: app
        image: %s
        command: [sh, -c, "trap '' TERM; echo began >> /data/began; while :; do sleep 0.1; done"]
        volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
`

// git is what a GitOps controller finds in its repository: a claim, a Deployment that
// leaves its replicas to an autoscaler and, once it is merged, a VolumeMove.
func git(namespace string) (claim, deployment, vmove string) {
	claim = fmt.Sprintf(`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {namespace: %s, name: data, labels: {app: web, team: a}, annotations: {example.com/commit: "1"}},
spec: {accessModes: [ReadWriteMany], storageClassName: %s, resources: {requests: {storage: 1Gi}}}}`, namespace, fabric.Class)
	deployment = fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {namespace: %s, name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
`, namespace) + fmt.Sprintf(web, keys.RemoteTaint, processes.Shell)
	vmove = fmt.Sprintf(`{apiVersion: lodestone.dev/v1alpha1, kind: VolumeMove, metadata: {namespace: %s, name: web}, spec: {claims: [data], target: {cluster: west}, keepSourceFor: 1h}}`, namespace)
	return claim, deployment, vmove
}

// syncer applies what is in a repository again and again, as GitOps controllers do that
// take fields by force, and counts what did not work.
type syncer struct {
	mu     sync.Mutex
	merged bool
	errs   []string
}

func (s *syncer) merge() { s.mu.Lock(); defer s.mu.Unlock(); s.merged = true }

// begin syncs until the test ends. The first time is over when it returns.
func (s *syncer) begin(t *testing.T, namespace string) {
	t.Helper()
	claim, deployment, vmove := git(namespace)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	t.Cleanup(func() { stop(); <-ended })
	core, apps, vmoves := bed.Home.Client().CoreV1(), bed.Home.Client().AppsV1(), moves(t, namespace)
	force := metav1.PatchOptions{FieldManager: "gitops", Force: ptr.To(true)}
	once := func() {
		_, err := core.PersistentVolumeClaims(namespace).Patch(ctx, "data", types.ApplyPatchType, []byte(claim), force)
		s.note(ctx, err)
		_, err = apps.Deployments(namespace).Patch(ctx, "web", types.ApplyPatchType, []byte(deployment), force)
		s.note(ctx, err)
		s.mu.Lock()
		merged := s.merged
		s.mu.Unlock()
		if merged {
			_, err = vmoves.Patch(ctx, "web", types.ApplyPatchType, []byte(vmove), force)
			s.note(ctx, err)
		}
	}
	once()
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			once()
			time.Sleep(200 * time.Millisecond)
		}
	}()
}

func (s *syncer) note(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil && ctx.Err() == nil {
		s.errs = append(s.errs, err.Error())
	}
}

// changes counts how often the claim is changed from now on.
func changes(t *testing.T, namespace string) func() int {
	t.Helper()
	watching, err := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace).Watch(t.Context(),
		metav1.ListOptions{FieldSelector: "metadata.name=data"})
	require.NoError(t, err)
	t.Cleanup(watching.Stop)
	var mu sync.Mutex
	n := 0
	go func() {
		for event := range watching.ResultChan() {
			if event.Type == watch.Modified {
				mu.Lock()
				n++
				mu.Unlock()
			}
		}
	}()
	return func() int { mu.Lock(); defer mu.Unlock(); return n }
}

// webs returns the pods of the Deployment that are not ending.
func webs(t *testing.T, namespace string) (found []corev1.Pod) {
	t.Helper()
	pods := must.List(t, bed.Home.Client().CoreV1().Pods(namespace), metav1.ListOptions{LabelSelector: "app=web"})
	for _, pod := range pods.Items {
		if pod.DeletionTimestamp == nil {
			found = append(found, pod)
		}
	}
	return found
}

func began(t *testing.T, namespace string) int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder(t, namespace, "data"), "began"))
	require.NoError(t, err)
	return strings.Count(string(data), "\n")
}

func TestGitOpsAndAnAutoscalerGoOnBesideAMove(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	claim := fabric.NewClaim(namespace, "data", fabric.Class)
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	beginsWith(t, application(namespace, "data", "data"), claim)
	syncs := &syncer{}
	syncs.begin(t, namespace)
	ready := func(pods int, node string) func() bool {
		return func() bool {
			found := webs(t, namespace)
			for i := range found {
				if found[i].Status.Phase != corev1.PodRunning || gated(&found[i]) || node != "" && found[i].Spec.NodeName != node {
					return false
				}
			}
			return len(found) == pods
		}
	}
	seen := func() any { return webs(t, namespace) }
	await.Until(t, "a pod runs", ready(1, ""), seen)
	await.Until(t, "it has begun", func() bool { return began(t, namespace) == 1 })
	scalers := bed.Home.Client().AutoscalingV2().HorizontalPodAutoscalers(namespace)
	must.Create(t, scalers, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"},
			MinReplicas:    ptr.To(int32(1)), MaxReplicas: 3,
		}})

	// The object is pruned in the middle, and synced again at once: that is two moves.
	changed := changes(t, namespace)
	syncs.merge()
	made := &v1alpha1.VolumeMove{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web"}}
	await.Until(t, "the move is synced", func() bool {
		_, err := moves(t, namespace).Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil
	})
	pruned := reaches(t, made, v1alpha1.MoveQuiesce)
	must.Delete(t, moves(t, namespace), "web")
	await.Until(t, "it is another one", func() bool {
		now, err := moves(t, namespace).Get(t.Context(), "web", metav1.GetOptions{})
		return err == nil && now.UID != pruned.UID
	})
	nothingLeft(t, namespace, pruned)

	// While its claim is locked the autoscaler wants more pods.
	reaches(t, made, v1alpha1.MoveQuiesce)
	await.Until(t, "the claim is locked", func() bool {
		return await.Claim(t, bed.Home.Client(), namespace, "data").Labels[keys.Moving] != ""
	})
	must.Patch(t, scalers, "web", types.MergePatchType, []byte(`{"spec":{"minReplicas":3}}`))
	await.Until(t, "the new pods wait at the gate", func() bool {
		waiting := 0
		for _, pod := range webs(t, namespace) {
			if gated(&pod) && pod.Spec.NodeName == "" {
				waiting++
			}
		}
		return waiting == 3
	}, seen)
	reaches(t, made, v1alpha1.MoveRetain)
	await.Until(t, "all run at the target", ready(3, fabric.WestNode), seen)
	await.Until(t, "each has begun", func() bool { return began(t, namespace) >= 4 })
	after := await.Claim(t, bed.Home.Client(), namespace, "data")
	assert.Equal(t, "a", after.Labels["team"])
	assert.Equal(t, "1", after.Annotations["example.com/commit"])
	for _, marks := range []map[string]string{after.Labels, after.Annotations} {
		assert.NotContains(t, marks, keys.Moving)
		assert.NotContains(t, marks, keys.Move)
	}

	// Nobody has to put anything right.
	t.Log("the claim was changed", changed(), "times")
	assert.Less(t, changed(), 60)
	// The provisioner looks once more whether a move holds the claim, and may write then.
	quiet := time.Now().Add(5 * time.Second)
	await.Until(t, "the last look at the claim is over", func() bool { return time.Now().After(quiet) })
	before := changed()
	await.Never(t, "nobody may fight over the claim", func() bool { return changed() != before })
	assert.Contains(t, []int{4, 5}, began(t, namespace), "one before, three after, and one between the moves if the first was "+
		"stopped that late")
	syncs.mu.Lock()
	defer syncs.mu.Unlock()
	assert.Empty(t, syncs.errs)
}
