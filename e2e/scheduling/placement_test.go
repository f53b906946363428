package scheduling_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// placement is a row of the table in docs/scheduling.md: what four replicas ask for, and where they
// go.
type placement struct {
	asks, goes string
	// counts are the numbers of pods at home and in the remote cluster of which one comes about;
	// the others of the four wait.
	counts []count
	// kind is that of the workload: a StatefulSet with a claim for each pod, if it is empty.
	kind string
	// rule is the parameter lodestone.dev/siblings of the class.
	rule   string
	change func(*corev1.PodSpec)
}

type count struct{ home, remote int }

const (
	spreadOut = "to the nodes in turn: 2 or 3 at home, 1 or 2 in west"
	halves    = "2 at home, 2 in west"
	together  = "all where the first is"
	allRemote = "all in west: home's nodes have no such label"
)

var (
	inTurn   = []count{{home: 2, remote: 2}, {home: 3, remote: 1}}
	half     = []count{{home: 2, remote: 2}}
	oneGroup = []count{{home: 4}, {remote: 4}}
	inRemote = []count{{remote: 4}}
)

var placements = []placement{
	{asks: "nothing", goes: spreadOut, counts: inTurn},
	{asks: "nothing, a Deployment", goes: spreadOut, counts: inTurn, kind: "Deployment"},
	{asks: "nothing, a Job", goes: "all in west, where most room for pods is: kube-scheduler does not spread pods of Jobs", counts: inRemote,
		kind: "Job"},
	{asks: "spreading by `kubernetes.io/hostname`, `ScheduleAnyway`", goes: spreadOut, counts: inTurn,
		change: spread(corev1.LabelHostname, corev1.ScheduleAnyway)},
	{asks: "spreading by `kubernetes.io/hostname`, `DoNotSchedule`", goes: spreadOut, counts: inTurn,
		change: spread(corev1.LabelHostname, corev1.DoNotSchedule)},
	{asks: "spreading by `topology.kubernetes.io/zone`, `ScheduleAnyway`", goes: halves, counts: half,
		change: spread(corev1.LabelTopologyZone, corev1.ScheduleAnyway)},
	{asks: "spreading by `topology.kubernetes.io/zone`, `DoNotSchedule`", goes: halves, counts: half,
		change: spread(corev1.LabelTopologyZone, corev1.DoNotSchedule)},
	{asks: "spreading by `lodestone.dev/cluster`, `ScheduleAnyway`", goes: allRemote, counts: inRemote,
		change: spread(keys.Cluster, corev1.ScheduleAnyway)},
	{asks: "spreading by `lodestone.dev/cluster`, `DoNotSchedule`", goes: allRemote, counts: inRemote,
		change: spread(keys.Cluster, corev1.DoNotSchedule)},
	{asks: "anti-affinity by `kubernetes.io/hostname`, preferred", goes: spreadOut, counts: inTurn,
		change: apart(corev1.LabelHostname, false)},
	{asks: "anti-affinity by `kubernetes.io/hostname`, required", goes: "2 at home, 1 in west; the fourth waits",
		counts: []count{{home: 2, remote: 1}}, change: apart(corev1.LabelHostname, true)},
	{asks: "anti-affinity by `topology.kubernetes.io/zone`, preferred", goes: halves, counts: half,
		change: apart(corev1.LabelTopologyZone, false)},
	{asks: "anti-affinity by `topology.kubernetes.io/zone`, required", goes: "1 at home, 1 in west; two wait",
		counts: []count{{home: 1, remote: 1}}, change: apart(corev1.LabelTopologyZone, true)},
	{asks: "affinity by `topology.kubernetes.io/zone`, preferred", goes: together, counts: oneGroup,
		change: near(corev1.LabelTopologyZone, false)},
	{asks: "affinity by `topology.kubernetes.io/zone`, required", goes: together, counts: oneGroup,
		change: near(corev1.LabelTopologyZone, true)},
	{asks: "nothing, class with `lodestone.dev/siblings: pack`", goes: together, counts: oneGroup, rule: keys.SiblingsPack},
	{asks: "nothing, class with `lodestone.dev/siblings: spread`", goes: halves, counts: half, rule: keys.SiblingsSpread},
	{asks: "spreading by `topology.kubernetes.io/zone`, `ScheduleAnyway`, class with `lodestone.dev/siblings: pack`", goes: halves,
		counts: half, rule: keys.SiblingsPack, change: spread(corev1.LabelTopologyZone, corev1.ScheduleAnyway)},
	{asks: "anti-affinity by `kubernetes.io/hostname`, preferred, class with `lodestone.dev/siblings: pack`", goes: spreadOut,
		counts: inTurn, rule: keys.SiblingsPack, change: apart(corev1.LabelHostname, false)},
}

var ofReplicas = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}

func spread(by string, unless corev1.UnsatisfiableConstraintAction) func(*corev1.PodSpec) {
	return func(pod *corev1.PodSpec) {
		pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: by, WhenUnsatisfiable: unless,
			LabelSelector: ofReplicas}}
	}
}

func apart(by string, must bool) func(*corev1.PodSpec) {
	term := corev1.PodAffinityTerm{TopologyKey: by, LabelSelector: ofReplicas}
	rule := &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
		{Weight: 100, PodAffinityTerm: term}}}
	if must {
		rule = &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	}
	return func(pod *corev1.PodSpec) { pod.Affinity = &corev1.Affinity{PodAntiAffinity: rule} }
}

func near(by string, must bool) func(*corev1.PodSpec) {
	term := corev1.PodAffinityTerm{TopologyKey: by, LabelSelector: ofReplicas}
	rule := &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
		{Weight: 100, PodAffinityTerm: term}}}
	if must {
		rule = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
	}
	return func(pod *corev1.PodSpec) { pod.Affinity = &corev1.Affinity{PodAffinity: rule} }
}

// Two nodes at home are in zone home, and the virtual node is in a zone of its own with the room of a
// cluster, as Lodestone's are.
func TestWhereFourReplicasGo(t *testing.T) {
	testbed.NotInShort(t)
	for _, row := range placements {
		t.Run(row.asks, func(t *testing.T) {
			s := gravityStage(t)
			field := map[string]string{"test.lodestone.dev/field": s.remote}
			homeNode := func(name string) fakekubelet.Node {
				return fakekubelet.Node{Name: name + "-" + s.remote, Allocatable: machines(1),
					Labels: map[string]string{corev1.LabelTopologyZone: "home", "test.lodestone.dev/field": s.remote}}
			}
			there := virtualNode(s.remote)
			there.Name += "-west"
			there.Allocatable = machines(10)
			there.Labels["test.lodestone.dev/field"], there.Labels[corev1.LabelTopologyZone] = s.remote, s.remote
			nodes := []fakekubelet.Node{homeNode("one"), homeNode("two"), there}
			_, err := fakekubelet.Start(t.Context(), fakekubelet.Options{Config: s.AdminConfig(), Nodes: nodes})
			require.NoError(t, err)
			t.Cleanup(func() {
				for _, node := range nodes {
					_ = s.Client().CoreV1().Nodes().Delete(context.Background(), node.Name, metav1.DeleteOptions{})
				}
			})
			parameters := map[string]string{}
			if row.rule != "" {
				parameters[keys.Siblings] = row.rule
			}
			spec := corev1.PodSpec{
				NodeSelector: field,
				Containers: []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}}}},
			}
			if row.change != nil {
				row.change(&spec)
			}
			got := s.replicas(row.kind, s.class("db", keys.Driver, parameters), spec, there.Name)
			t.Logf("%d at home, %d in the remote cluster", got.home, got.remote)
			assert.Contains(t, row.counts, got)
		})
	}
}

// machines returns what so many machines have.
func machines(number int64) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewQuantity(8*number, resource.DecimalSI),
		corev1.ResourceMemory: *resource.NewQuantity(number*(16<<30), resource.BinarySI),
		corev1.ResourcePods:   *resource.NewQuantity(110*number, resource.DecimalSI),
	}
}

// replicas makes a workload of four pods, and returns where kube-scheduler wants them. Those of a
// StatefulSet come one after the other, which is its default; there they would wait for each other's
// readiness, and here nothing runs.
func (s *stage) replicas(kind, class string, spec corev1.PodSpec, remote string) count {
	s.t.Helper()
	ctx := s.t.Context()
	meta := metav1.ObjectMeta{Name: "db"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: ofReplicas.MatchLabels}, Spec: spec}
	var err error
	switch four := ptr.To(int32(4)); kind {
	case "Deployment":
		_, err = s.Client().AppsV1().Deployments(s.namespace).Create(ctx, &appsv1.Deployment{ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{Replicas: four, Selector: ofReplicas, Template: template}}, metav1.CreateOptions{})
	case "Job":
		template.Spec.RestartPolicy = corev1.RestartPolicyNever
		_, err = s.Client().BatchV1().Jobs(s.namespace).Create(ctx, &batchv1.Job{ObjectMeta: meta,
			Spec: batchv1.JobSpec{Parallelism: four, Completions: four, Template: template}}, metav1.CreateOptions{})
	default:
		template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		must.Create(s.t, s.Client().AppsV1().StatefulSets(s.namespace), &appsv1.StatefulSet{ObjectMeta: meta,
			Spec: appsv1.StatefulSetSpec{
				Replicas: ptr.To(int32(1)), PodManagementPolicy: appsv1.ParallelPodManagement, Selector: ofReplicas, Template: template,
				VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
					ObjectMeta: metav1.ObjectMeta{Name: "data"},
					Spec: corev1.PersistentVolumeClaimSpec{
						AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class, Resources: size(),
					},
				}},
			}})
		for number := 1; number < 4; number++ {
			s.awaitReplicas(number, remote)
			must.Kubectl(s.t, s, "", "scale", "statefulset", "db", "-n", s.namespace, fmt.Sprintf("--replicas=%d", number+1))
		}
	}
	require.NoError(s.t, err)
	return s.awaitReplicas(4, remote)
}

// awaitReplicas waits until each of so many pods has a node, or a claim for which one was chosen, or
// is held back by anti-affinity. It returns how many have one in each cluster.
func (s *stage) awaitReplicas(number int, remote string) (found count) {
	s.t.Helper()
	await.Until(s.t, fmt.Sprintf("%d replicas are placed", number), func() bool {
		pods, err := s.Client().CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=db"})
		if err != nil {
			return false
		}
		found = count{}
		waiting := 0
		for i := range pods.Items {
			pod := &pods.Items[i]
			node := pod.Spec.NodeName
			if node == "" {
				node = s.selected("data-" + pod.Name)
			}
			switch {
			case node == remote:
				found.remote++
			case node != "":
				found.home++
			case strings.Contains(s.refusal(s.t, pod.Name), "anti-affinity"):
				// Other reasons pass, as that its claim was not made yet.
				waiting++
			}
		}
		return found.home+found.remote+waiting == number
	}, func() any { return found })
	return found
}

// The rows above are the table in the docs.
func TestTheDocsSayWhereFourReplicasGo(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "scheduling.md"))
	require.NoError(t, err)
	var said, want []string
	for line := range strings.SplitSeq(string(page), "\n") {
		if strings.HasPrefix(line, "| ") && slices.ContainsFunc(placements, func(p placement) bool {
			return strings.HasPrefix(line, "| "+p.asks+" |")
		}) {
			said = append(said, line)
		}
	}
	for _, row := range placements {
		want = append(want, fmt.Sprintf("| %s | %s |", row.asks, row.goes))
	}
	assert.Equal(t, want, said)
}
