// Package upgrade tests that what an earlier version of Lodestone has made outlives the upgrade to this one, and the way
// back: volumes, pods in remote clusters, a move that is under way. Both versions run as they were built, on real control planes, and
// their manifests are applied as docs/upgrade.md says.
package upgrade

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/counter"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/mover/harness"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func TestMain(m *testing.M) {
	testbed.Main(m, func(context.Context) error { return nil })
}

// shop is the namespace of the applications.
const shop = "shop"

func TestWhatIsThereOutlivesAnUpgradeAndTheWayBack(t *testing.T) {
	testbed.Require(t)
	harness.Require(t)
	if os.Getenv("E2E_LONG") == "" {
		t.Skip("another version has to be built for it: set E2E_LONG")
	}
	earlier, this := earlierVersion(t), thisVersion(t)
	b := &bed{versions: []version{earlier, this}}
	b.start(t, earlier)

	b.claims(t, "here", "there", "free")
	b.runs(t, "here", fabric.AtHome)
	b.runs(t, "there", inWest)
	b.deploys(t, "moving")
	move := b.moves(t, "moving")
	b.reaches(t, move, v1alpha1.MovePreCopy)
	kept := b.objects(t)
	require.Greater(t, len(kept), 10, "what is compared")

	output, err := b.plugin(t, this, "check-upgrade")
	require.NoError(t, err)
	t.Log(output)

	b.replace(t, earlier, this)
	b.holds(t, kept)
	b.reaches(t, move, v1alpha1.MoveDone)
	b.counts(t, "moving")
	b.serves(t, "upgraded")

	b.deploys(t, "moving-back")
	back := b.moves(t, "moving-back")
	b.reaches(t, back, v1alpha1.MovePreCopy)
	again := b.objects(t)
	b.replace(t, this, earlier)
	b.holds(t, kept)
	b.holds(t, again)
	b.reaches(t, back, v1alpha1.MoveDone)
	b.counts(t, "moving-back")
	b.serves(t, "back")
	b.empties(t)
}

// bed is the two clusters and the programs that run in them.
type bed struct {
	*fabric.Fabric
	versions []version
	// running are the programs of a version, in the order in which docs/upgrade.md replaces them.
	running []*testbed.Program
}

func options(v version) fabric.Options {
	return fabric.Options{Tree: v.tree, ControllerManagerQPS: 500, Agent: true, VirtualNode: true}
}

// start starts clusters with a version, home and west peered.
func (b *bed) start(t *testing.T, v version) {
	t.Helper()
	o := options(v)
	o.Programs = map[string]string{}
	for _, version := range b.versions {
		o.Programs[version.mover()] = version.program("mover")
	}
	var err error
	b.Fabric, err = fabric.Start(t.Context(), o)
	require.NoError(t, err)
	b.running = append([]*testbed.Program{b.agent(t, v)}, b.atHome(t, v)...)
	require.NoError(t, b.Admit(t.Context(), nil))
	b.ready(t)
	require.NoError(t, b.Home.MakeNamespace(t.Context(), shop))
	must.Kubectl(t, b.Home, "", "label", "namespace", shop, keys.Offload+"="+keys.OffloadEnabled)
}

func (b *bed) ready(t *testing.T) {
	t.Helper()
	require.NoError(t, b.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	require.NoError(t, b.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
}

func (b *bed) agent(t *testing.T, v version) *testbed.Program {
	t.Helper()
	agent, err := b.RunAgent(t.Context(), v.name+"-agent", v.program("remoteagent"))
	require.NoError(t, err)
	return agent
}

// atHome starts the programs of home, beside those of another version: an extender only where none runs.
func (b *bed) atHome(t *testing.T, v version) []*testbed.Program {
	t.Helper()
	provisioner, err := b.RunProvisioner(t.Context(), v.name+"-provisioner", v.program("provisioner"), "--mover-image="+v.mover(),
		"--mover-networks="+processes.Network)
	require.NoError(t, err)
	node, err := b.RunVirtualNode(t.Context(), v.name+"-virtualnode", v.program("virtualnode"))
	require.NoError(t, err)
	extender, err := b.RunExtender(t.Context(), v.name+"-extender", v.program("extender"))
	require.NoError(t, err)
	return []*testbed.Program{provisioner, node, extender}
}

// replace replaces one version by another, west before home, as docs/upgrade.md says: a program ends when its successor is ready, as
// in a rollout of a Deployment.
func (b *bed) replace(t *testing.T, from, to version) {
	t.Helper()
	ctx := t.Context()
	remote := filepath.Join(to.tree, "deploy", "remote")
	must.Kubectl(t, b.West, "", "apply", "-k", remote, "-l", "app.kubernetes.io/component=remote-agent")
	agent := b.agent(t, to)
	require.NoError(t, b.running[0].Stop(grace))
	must.Kubectl(t, b.West, "", "apply", "-k", remote)
	// Home may stay as it is for long: this is one version beside the other.
	b.serves(t, "beside-"+to.name)
	require.NoError(t, b.Install(ctx, options(to)))
	// All extenders listen at the same address.
	require.NoError(t, b.running[3].Stop(grace))
	next := append([]*testbed.Program{agent}, b.atHome(t, to)...)
	require.NoError(t, b.running[1].Stop(grace))
	require.NoError(t, b.running[2].Stop(grace))
	b.running = next
	b.ready(t)
	t.Logf("%s was replaced by %s", from.name, to.name)
}

// grace is how long a program may take to end.
const grace = 30 * time.Second

// plugin runs the plugin of a version as the administrator of home.
func (b *bed) plugin(t *testing.T, v version, arguments ...string) (string, error) {
	t.Helper()
	return run(t, v.program("kubectl-lodestone"), append(arguments, "--kubeconfig="+b.Home.Kubeconfig())...)
}

func (b *bed) claims(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		claim := fabric.NewClaim(shop, name, fabric.Class)
		claim.Spec.Resources.Requests[corev1.ResourceStorage] = resource.MustParse("64Mi")
		must.Create(t, b.Home.Client().CoreV1().PersistentVolumeClaims(shop), claim)
	}
}

// application counts in a claim; its other file is what a move takes its time for.
func application(claim string) *corev1.Pod {
	return counter.Pod(shop, claim, claim, "[ -e /data/bulk ] || dd if=/dev/urandom of=/data/bulk bs=64k count=96 2>/dev/null\n"+
		counter.Script("0.05"))
}

// inWest has a pod run in west.
func inWest(pod *corev1.Pod) *corev1.Pod {
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	return fabric.InWest(pod)
}

// runs runs an application until it counts.
func (b *bed) runs(t *testing.T, claim string, where func(*corev1.Pod) *corev1.Pod) {
	t.Helper()
	must.Create(t, b.Home.Client().CoreV1().Pods(shop), where(application(claim)))
	b.counts(t, claim)
}

// deploys has a Deployment count in a claim of home, which may run anywhere later.
func (b *bed) deploys(t *testing.T, claim string) {
	t.Helper()
	b.claims(t, claim)
	b.runs(t, claim, fabric.AtHome)
	must.Delete(t, b.Home.Client().CoreV1().Pods(shop), claim)
	await.Until(t, "the first pod is gone", func() bool { return await.Pod(t, b.Home.Client(), shop, claim) == nil })
	pod, labels := application(claim), map[string]string{"app": claim}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists}}
	must.Create(t, b.Home.Client().AppsV1().Deployments(shop), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: claim},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	})
	b.counts(t, claim)
}

// moves begins a move to west that takes its time.
func (b *bed) moves(t *testing.T, claim string) *v1alpha1.VolumeMove {
	t.Helper()
	return must.Create(t, b.client(t), &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Name: claim},
		Spec: v1alpha1.VolumeMoveSpec{Claims: []string{claim}, Target: v1alpha1.MoveTarget{Cluster: "west"},
			BandwidthLimit: ptr.To(resource.MustParse("256Ki")), KeepSourceFor: &metav1.Duration{Duration: time.Second}},
	})
}

func (b *bed) client(t *testing.T) *clients.VolumeMoves {
	t.Helper()
	moves, err := clients.NewVolumeMoveClient(b.Home.AdminConfig())
	require.NoError(t, err)
	return moves.In(shop)
}

func (b *bed) reaches(t *testing.T, move *v1alpha1.VolumeMove, phase v1alpha1.MovePhase) {
	t.Helper()
	var now *v1alpha1.VolumeMove
	await.Until(t, "the move is in phase "+string(phase), func() bool {
		now = must.Get(t, b.client(t), move.Name)
		require.NotContains(t, []v1alpha1.MovePhase{v1alpha1.MoveFailed, v1alpha1.MoveAborted}, now.Status.Phase, now.Status.Message)
		return now.Status.Phase == phase
	}, func() any { return now.Status }, func() any { return await.Events(t, b.Home.Client(), shop) })
}

// counts waits until the application of a claim counts on. Each number must be there once, in order.
func (b *bed) counts(t *testing.T, claim string) {
	t.Helper()
	var last int
	counted := func() int {
		folder := b.Folder(t, shop, claim)
		if folder == "" {
			return 0
		}
		return counter.Counted(t, folder)
	}
	begun := counted()
	await.Until(t, "the application of "+claim+" counts on", func() bool { last = counted(); return last > begun+20 },
		func() any { return fmt.Sprintf("from %d to %d", begun, last) }, func() any { return await.Events(t, b.Home.Client(), shop) },
		func() any { return await.Events(t, b.West.Client(), shop) })
}

// serves makes new claims, at home and in west, and uses them.
func (b *bed) serves(t *testing.T, name string) {
	t.Helper()
	b.claims(t, name+"-here", name+"-there")
	b.runs(t, name+"-here", fabric.AtHome)
	b.runs(t, name+"-there", inWest)
}

// objects are those of applications and of Lodestone in both clusters, with their UIDs, without those of the move, which names its
// movers and the pods, and without the volumes of its claim.
func (b *bed) objects(t *testing.T) map[string]string {
	t.Helper()
	found, moved := map[string]string{}, []string{}
	for _, name := range []string{"moving", "moving-back"} {
		if claim := await.Claim(t, b.Home.Client(), shop, name); claim != nil {
			moved = append(moved, string(claim.UID))
		}
	}
	for cluster, kinds := range map[*testbed.Cluster]string{
		b.Home: "persistentvolumeclaims,persistentvolumes,pods,nodes,remoteclusters",
		b.West: "persistentvolumeclaims,persistentvolumes,pods,homeclusters,shadowpods,namespacerequests",
	} {
		output := must.Kubectl(t, cluster, "", "get", kinds, "-A", "-o",
			`jsonpath={range .items[*]}{.kind}/{.metadata.namespace}/{.metadata.name}/{.spec.claimRef.name} {.metadata.uid}{"\n"}{end}`)
		for line := range strings.Lines(output) {
			object, uid, _ := strings.Cut(strings.TrimSpace(line), " ")
			ofMove := func(uid string) bool { return strings.Contains(object, uid) }
			if !strings.Contains(object, "/mov") && !slices.ContainsFunc(moved, ofMove) {
				found[cluster.Name()+" "+object] = uid
			}
		}
	}
	return found
}

// holds checks that objects are those that they were, that their claims are bound, and that their pods go on.
func (b *bed) holds(t *testing.T, kept map[string]string) {
	t.Helper()
	now := b.objects(t)
	for object, uid := range kept {
		assert.Equal(t, uid, now[object], object)
	}
	claims := must.List(t, b.Home.Client().CoreV1().PersistentVolumeClaims(shop))
	for _, claim := range claims.Items {
		switch name := claim.Name; name {
		case "free":
			assert.Equal(t, corev1.ClaimPending, claim.Status.Phase, "nobody uses it")
		case "moving", "moving-back":
		default:
			assert.Equal(t, corev1.ClaimBound, claim.Status.Phase, name)
			b.counts(t, name)
		}
	}
}

// empties deletes all that tenants have, and waits until nothing is left of it in either cluster.
func (b *bed) empties(t *testing.T) {
	t.Helper()
	must.Kubectl(t, b.Home, "", "delete", "namespace", shop, "--wait=false")
	left := func() (found []string) {
		for object := range b.objects(t) {
			if strings.Contains(object, shop) || strings.Contains(object, "PersistentVolume") {
				found = append(found, object)
			}
		}
		return found
	}
	await.Until(t, "all is gone", func() bool { return len(left()) == 0 }, func() any { return left() })
}

// TestThePluginUpgradesWhatTheEarlierOneInstalledAndTheWayBack has both plugins install over what the other one has made. Kubelets are
// played: TestWhatIsThereOutlivesAnUpgradeAndTheWayBack has the programs run.
func TestThePluginUpgradesWhatTheEarlierOneInstalledAndTheWayBack(t *testing.T) {
	testbed.Require(t)
	if os.Getenv("E2E_LONG") == "" {
		t.Skip("another version has to be built for it: set E2E_LONG")
	}
	earlier, this := earlierVersion(t), thisVersion(t)
	clusters, err := testbed.Start(t.Context(), testbed.Config{Name: "plain"})
	require.NoError(t, err)
	cluster := clusters[0]
	_, err = fakekubelet.Start(t.Context(), fakekubelet.Options{Config: cluster.AdminConfig(), Nodes: []fakekubelet.Node{{Name: "plain-1"}}})
	require.NoError(t, err)
	plugin := func(v version, arguments ...string) string {
		t.Helper()
		output, err := run(t, v.program("kubectl-lodestone"), append(arguments, "--kubeconfig="+cluster.Kubeconfig())...)
		t.Logf("%s: kubectl lodestone %v\n%s", v.name, arguments, output)
		require.NoError(t, err)
		return output
	}
	roles := [][]string{{"install", "--remote"}, {"install"}} // in the order of docs/upgrade.md
	for _, step := range []struct {
		by  version
		tag string
	}{{earlier, "v0.0.1"}, {this, "v0.0.2"}, {earlier, "v0.0.1"}, {this, "v0.0.2"}} {
		for _, role := range roles {
			plugin(step.by, append(role, "--tag", step.tag)...)
		}
	}
	output, err := run(t, this.program("kubectl-lodestone"), "doctor", "--kubeconfig="+cluster.Kubeconfig())
	t.Log(output)
	assert.Error(t, err, "nothing runs")
	assert.Regexp(t, `ok +manifests`, output, "nothing of the earlier version is left in the way")
	plugin(this, "uninstall", "--yes")
	plugin(this, "uninstall", "--remote", "--yes")
	left := must.Kubectl(t, cluster, "", "get", "namespaces,crds,clusterroles,clusterrolebindings,storageclasses,csidrivers,"+
		"validatingadmissionpolicies,validatingadmissionpolicybindings", "-o", "name")
	assert.NotContains(t, left, "lodestone")
}
