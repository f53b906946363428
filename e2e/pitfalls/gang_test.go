package pitfalls

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// gangs are the feature gates of gang scheduling and of its preemption, which are off by default.
const gangs = "GenericWorkload=true,GangScheduling=true,WorkloadAwarePreemption=true"

// most is more than half of a node: two pods of it never share one.
const most = "40"

// A gang of one pod more than home has nodes: it fits only where one may go to west.
func TestAGangIsPlacedInBothClustersOrNotAtAll(t *testing.T) {
	e := scheduleGangs(t)
	s := newShop(t)
	s.gang("ring", "")
	s.unplaced("ring")
	s.openFor("ring")
	s.placedApart("ring")
	assert.NotZero(t, e.calls(t, "filter"), "the extender was asked for each pod")
}

// What kube-scheduler would evict for a gang it tries with the extender's filter, but it does not ask the
// verb that is there for that.
func TestPreemptionForAGangHeedsTheFilterAlone(t *testing.T) {
	e := scheduleGangs(t)
	urgent := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "urgent-"}, Value: 1000}
	urgent = must.Create(t, bed.Client().SchedulingV1().PriorityClasses(), urgent)
	t.Cleanup(func() {
		assert.NoError(t, bed.Client().SchedulingV1().PriorityClasses().Delete(context.Background(), urgent.Name, metav1.DeleteOptions{}))
	})
	s := newShop(t)
	for _, node := range append([]string{westNode}, homeNodes...) {
		pod := large(newPod("low-" + node))
		pod.Spec.NodeName = node
		s.make(pod)
	}
	low := func() (left int) {
		for _, node := range append([]string{westNode}, homeNodes...) {
			pod, err := bed.Client().CoreV1().Pods(s.name).Get(t.Context(), "low-"+node, metav1.GetOptions{})
			if err == nil && pod.DeletionTimestamp == nil {
				left++
			} else if !apierrors.IsNotFound(err) {
				require.NoError(t, err)
			}
		}
		return left
	}

	s.gang("urgent", urgent.Name)
	s.unplaced("urgent")
	assert.Equal(t, 3, low(), "nobody goes for a gang that finds no place all the same")
	s.openFor("urgent")
	s.placedApart("urgent")
	assert.Zero(t, low())
	assert.Zero(t, e.calls(t, "preempt"), "kube-scheduler asks now: docs/scheduling-contract.md says that it does not")
}

// servesGangs says whether the cluster's Kubernetes has the version of their API that the tests use: each has another one. It is not
// served by default.
func servesGangs() (bool, error) {
	kubernetes, err := built.Chosen(built.ControlPlane, false)
	return strings.HasPrefix(kubernetes.Version, "v1.36."), err
}

// scheduleGangs starts a kube-scheduler that knows gangs, with an extender.
func scheduleGangs(t *testing.T) *extender {
	t.Helper()
	testbed.Require(t)
	served, err := servesGangs()
	require.NoError(t, err)
	if !served {
		t.Skip("PodGroups of v1alpha2 are in Kubernetes 1.36 alone")
	}
	at := address(t)
	e := runExtender(t, at, "lodestone-extender")
	content, err := os.ReadFile(withExtender)
	require.NoError(t, err)
	scheduler(t, content, settings{extender: at, gates: gangs})
	return e
}

// members are the pods of a gang, and their claims.
func members(gang string) []string {
	names := make([]string, len(homeNodes)+1)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d", gang, i)
	}
	return names
}

func large(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.TerminationGracePeriodSeconds = ptr.To[int64](0)
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(most)}
	return pod
}

// gang makes pods that are to be placed together, each with a claim.
func (s *shop) gang(name, priority string) {
	s.t.Helper()
	all := members(name)
	must.Create(s.t, bed.Client().SchedulingV1alpha2().PodGroups(s.name), &schedulingv1alpha2.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: schedulingv1alpha2.PodGroupSpec{
			SchedulingPolicy: schedulingv1alpha2.PodGroupSchedulingPolicy{
				Gang: &schedulingv1alpha2.GangSchedulingPolicy{MinCount: int32(len(all))}},
			PriorityClassName: priority,
		},
	})
	for _, member := range all {
		s.claim(member, nil)
		pod := large(newPod(member, member))
		pod.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: ptr.To(name)}
		pod.Spec.PriorityClassName = priority
		s.make(pod)
	}
}

// nodesOf returns the node that kube-scheduler selected for each claim of a gang that has one.
func (s *shop) nodesOf(gang string) map[string]string {
	s.t.Helper()
	nodes := map[string]string{}
	for _, member := range members(gang) {
		claim := must.Get(s.t, bed.Client().CoreV1().PersistentVolumeClaims(s.name), member)
		if node := claim.Annotations[keys.SelectedNode]; node != "" {
			nodes[member] = node
		}
	}
	return nodes
}

// unplaced waits until kube-scheduler says that it finds no place for a gang, and sees that no pod of it
// gets one.
func (s *shop) unplaced(gang string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		group := must.Get(s.t, bed.Client().SchedulingV1alpha2().PodGroups(s.name), gang)
		for _, condition := range group.Status.Conditions {
			if condition.Type == schedulingv1alpha2.PodGroupScheduled {
				return condition.Status == metav1.ConditionFalse
			}
		}
		return false
	}, long, often, "gang %s must find no place", gang)
	assert.Never(s.t, func() bool { return len(s.nodesOf(gang)) > 0 }, 2*time.Second, 10*often, "no pod of a gang is placed alone")
}

// openFor opens the namespace to west, and changes the claims as the provisioner does then.
func (s *shop) openFor(gang string) {
	s.t.Helper()
	must.Kubectl(s.t, bed, "", "label", "namespace", s.name, open)
	for _, member := range members(gang) {
		must.Patch(s.t, bed.Client().CoreV1().PersistentVolumeClaims(s.name), member, types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"now"}}}`, keys.ClusterChanged))
	}
}

// placedApart waits until each pod of a gang has a node of its own, in both clusters.
func (s *shop) placedApart(gang string) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		nodes := map[string]bool{}
		for _, node := range s.nodesOf(gang) {
			nodes[node] = true
		}
		return len(nodes) == len(homeNodes)+1
	}, long, often, "gang %s must be in both clusters", gang)
}
