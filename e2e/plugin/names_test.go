package plugin

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// shop peers with west and makes a namespace that is open to it, with the claims data and wal, which wait, and pod web in west.
func shop(t *testing.T) (namespace string) {
	t.Helper()
	peered(t)
	namespace = openNamespace(t)
	for _, name := range []string{"data", "wal"} {
		must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, name, fabric.Class))
	}
	podInWest(t, namespace, "web")
	return namespace
}

// A name that is not there is answered with those that are, whichever command it is given to.
func TestANameThatIsNotThereIsAnsweredWithThoseThatAre(t *testing.T) {
	namespace := shop(t)
	const (
		noClaim     = `there is no claim "dta" in namespace "{ns}"; there are: data, wal`
		noPod       = `there is no pod "wb" in namespace "{ns}"; there is: web`
		noCluster   = `there is no RemoteCluster "mars"; there is: west`
		noMove      = `namespace "{ns}" has no moves; kubectl lodestone move status -A shows those of other namespaces`
		noMoveOf    = `namespace "{ns}" has no moves; kubectl lodestone move status -A shows those of other namespaces`
		noNamespace = `there is no namespace "nowhere"; there are: …` // what is there depends on the other tests
	)
	for line, says := range map[string]string{
		"why pvc/dta -n {ns}":                     noClaim,
		"why pod wb -n {ns}":                      noPod,
		"why deploy/web -n {ns}":                  `there is no deployment "web" in namespace "{ns}", nor any other: give -n or --context if it is elsewhere`,
		"why pod/web -n nowhere":                  noNamespace,
		"why namespace/nowhere":                   noNamespace,
		"why -n nowhere":                          noNamespace,
		"status -n nowhere":                       noNamespace,
		"status mars":                             noCluster,
		"dashboard -n nowhere":                    noNamespace,
		"move dta -n {ns} --target-cluster west":  noClaim,
		"move data -n {ns} --target-cluster mars": noCluster,
		"move data -n {ns} --target-node mars":    `there is no node "mars"; there are: …`,
		"move statefulset/db -n {ns} --target-cluster west": `there is no statefulset "db" in namespace "{ns}", nor any other: give -n or --context if ` +
			`it is elsewhere`,
		"move pod/wb -n {ns} --target-cluster west": noPod,
		"move status data -n {ns}":                  noMove,
		"move status -n nowhere":                    noNamespace,
		"move abort pvc/data -n {ns}":               noMoveOf,
		"move finalize pvc data -n {ns}":            noMoveOf,
		"move rollback data -n {ns}":                noMove,
		"move give-up data -n {ns}":                 noMove,
		"move abort data -n nowhere":                noNamespace,
		"release pod/wb -n {ns}":                    noPod,
		"unpeer mars":                               noCluster + `; to take home's rights back in a remote cluster that home does not know any more, give --remote-context`,
		"confirm mars":                              noCluster,
		"lose pvc/dta -n {ns}":                      noClaim + `; of a claim that is gone, name the volume: kubectl lodestone lose pv/NAME`,
		"lose pv/pv-1":                              `there is no volume "pv-1"…`,
		"import pvc/dta -n {ns} --class lodestone":  noClaim,
		"import pv/pv-1 -n {ns} --class lodestone":  `there is no volume "pv-1"…`,
		"import pvc/data -n {ns} --class lodestone --cluster mars --remote-context west":      noCluster,
		"import pvc/dta -n {ns} --class lodestone --cluster west --remote-context west --yes": `in cluster "west" there is no claim "dta" in namespace "{ns}", nor any other: give -n or --context if it is elsewhere`,
		"choose dta -n {ns}":                                       noClaim,
		"rebind namespace/nowhere --context west":                  `there is no namespace "nowhere" in the cluster of context "west"; of home clusters there …`,
		"daemonsets daemonset/logs -n {ns}":                        `there is no daemonset "logs", nor any other: give another -n or --context if it is elsewhere`,
		"daemonsets -n nowhere":                                    noNamespace,
		"peer --remote-context west --lodestone-namespace nowhere": noNamespace,
	} {
		t.Run(line, func(t *testing.T) {
			r := lodestone(t, strings.Fields(strings.ReplaceAll(line, "{ns}", namespace))...).ends(t, failed)
			answers(t, says, namespace, r)
		})
	}
	for line, says := range map[string]string{
		"import pvc/data -n {ns} --class fast":      `there is no storage class "fast": name a virtual one, which is …`,
		"import pvc/data -n {ns} --class home-wait": `storage class "home-wait" is not virtual: name a virtual one, which is …`,
		"import pvc/data -n {ns} --class lodestone": `claim {ns}/data has no volume yet, so there is nothing to import: delete it and create it anew with the virtual class`,
		"lose pvc/data -n {ns}":                     `claim {ns}/data has no volume, so nothing of it is lost: delete the claim if it is to go`,
		"choose data -n {ns}":                       `claim {ns}/data has no volume, so there is nothing to choose: kubectl lodestone why pvc/data -n {ns} says what it waits for`,
		"move pod/web -n {ns} --target-cluster west": `pod {ns}/web uses no claims, so there is nothing to move: name claims, ` +
			`or a workload that uses some`,
		"release pod/web -n {ns}": `pod {ns}/web runs on node "west", which is Ready: delete the pod with kubectl delete pod, and it ends properly in ` +
			`the remote cluster`,
		"unpeer west --forget --volume pv-1": `--volume names pv-1, …`,
	} {
		t.Run(line, func(t *testing.T) {
			r := lodestone(t, strings.Fields(strings.ReplaceAll(line, "{ns}", namespace))...).ends(t, refused)
			answers(t, says, namespace, r)
		})
	}
}

// answers checks the last line of what a command said. Of an expectation that ends with … only the beginning is compared.
func answers(t *testing.T, says, namespace string, r result) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(r.stderr, "\n"), "\n")
	said, want := lines[len(lines)-1], "error: "+strings.ReplaceAll(says, "{ns}", namespace)
	if begins, open := strings.CutSuffix(want, "…"); open {
		assert.True(t, strings.HasPrefix(said, begins), said)
		return
	}
	assert.Equal(t, want, said)
}

// Objects are named as kubectl takes them, and lists are chosen and written as it does.
func TestObjectsAreNamedAndListedAsKubectlDoes(t *testing.T) {
	namespace := shop(t)
	for _, arguments := range []string{"pvc/data", "pvc data", "PVC/data", "claim data", "persistentvolumeclaims data"} {
		r := lodestone(t, append(append([]string{"why"}, strings.Fields(arguments)...), "-n", namespace)...).ends(t, done)
		assert.True(t, strings.HasPrefix(r.out, `claim "data" waits for a pod that uses it`), r.out)
	}
	all := lodestone(t, "why", "-n", namespace).ends(t, done).out
	assert.Contains(t, all, "pvc/data   claim \"data\" waits for a pod that uses it")
	assert.Contains(t, all, "pvc/wal ")
	assert.NotContains(t, all, "pod/web", "it runs")
	assert.Contains(t, lodestone(t, "why", "-n", namespace, "-o", "wide").ends(t, done).out, "namespace "+namespace+": open to west")
	assert.Equal(t, "pvc/data\npvc/wal\n", lodestone(t, "why", "pvcs", "-n", namespace, "-o", "name").ends(t, done).out)
	assert.Equal(t, "nothing waits in namespace \""+namespace+"\": give -A for all namespaces\n",
		lodestone(t, "why", "pods", "-n", namespace).ends(t, done).out)
	assert.Contains(t, lodestone(t, "why", "-A", "-o", "yaml").ends(t, done).out, "namespace: "+namespace)

	must.Kubectl(t, bed.Home, "", "label", "pvc", "wal", "-n", namespace, "app=shop")
	assert.Equal(t, "pvc/wal\n", lodestone(t, "why", "-A", "-l", "app=shop", "-o", "name").ends(t, done).out)
	assert.Contains(t, lodestone(t, "why", "pvc/wal", "-n", namespace, "-o", "json").ends(t, done).out, `"waiting": true`)
	some := lodestone(t, "status", "-l", "app=shop", "-o", "yaml").ends(t, done).out
	assert.Contains(t, some, "claim: wal")
	assert.NotContains(t, some, "claim: data")
	assert.Contains(t, lodestone(t, "status", "remotecluster/west", "-o", "name").ends(t, done).out, "remotecluster.lodestone.dev/west\n")

	// It is refused, for the claim has no volume, and is left, for nobody waits.
	lodestone(t, "move", "pvc", "data", "-n", namespace, "--target-cluster", "west", "--detach").ends(t, done)
	moves := lodestone(t, "move", "status", "-A", "-o", "name").ends(t, done).out
	assert.True(t, strings.HasPrefix(moves, "volumemove.lodestone.dev/data-"), moves)
	assert.Contains(t, lodestone(t, "move", "status", "-n", namespace, "-o", "wide").ends(t, done).out, "SOURCE")
	assert.Contains(t, lodestone(t, "move", "status", "pvc/data", "-n", namespace, "-o", "yaml").ends(t, done).out, "kind: VolumeMove")
	assert.Equal(t, "there are no moves with labels app=shop\n", lodestone(t, "move", "status", "-A", "-l", "app=shop").ends(t, done).out)
	move := strings.TrimSpace(strings.TrimPrefix(moves, "volumemove.lodestone.dev/"))
	await.Until(t, "the move is refused", func() bool {
		r := lodestone(t, "move", "abort", "volumemove/"+move, "-n", namespace)
		return r.code == refused && strings.Contains(r.stderr, "move "+move+" of data is over (Failed), so there is nothing to do")
	})

	version := lodestone(t, "version", "--client").ends(t, done).out
	assert.True(t, strings.HasPrefix(version, "kubectl-lodestone v"), version)
	assert.Contains(t, lodestone(t, "version", "--remote-context", "west", "-o", "yaml").ends(t, done).out, "goVersion: go")
	assert.Equal(t, "{\n  \"items\": []\n}\n", lodestone(t, "daemonsets", "-A", "-o", "json").ends(t, done).out)
	assert.Contains(t, lodestone(t, "check-upgrade", "-o", "json").ends(t, done).out, `"unread": []`)
}

// Nothing is begun or offered in a namespace that is being deleted, and nobody waits for it.
func TestANamespaceThatIsBeingDeletedIsSaidToBe(t *testing.T) {
	testbed.NotInShort(t)
	namespace := shop(t)
	ctx := t.Context()
	claims, pods := bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), bed.Home.Client().CoreV1().Pods(namespace)
	// Something of somebody else keeps the claim, and so the namespace.
	hold := func(finalizers string) {
		must.Kubectl(t, bed.Home, "", "patch", "pvc", "data", "-n", namespace, "--type=merge", "-p",
			`{"metadata":{"finalizers":[`+finalizers+`]}}`)
	}
	hold(`"example.com/held"`)
	must.Delete(t, bed.Home.Client().CoreV1().Namespaces(), namespace)
	t.Cleanup(func() {
		_, _ = bed.Home.Kubectl(context.Background(), "", "patch", "pvc", "data", "-n", namespace, "--type=merge", "-p",
			`{"metadata":{"finalizers":null}}`)
	})
	await.Until(t, "all but the claim is gone", func() bool {
		claim, err := claims.Get(ctx, "data", metav1.GetOptions{})
		left, failed := pods.List(ctx, metav1.ListOptions{})
		return err == nil && claim.DeletionTimestamp != nil && failed == nil && len(left.Items) == 0
	})
	held := `claim "data" is being deleted and is held by finalizer example.com/held`
	says(t, held+`; its namespace "`+namespace+`" is being deleted, too`, "pvc/data", "-n", namespace)
	says(t, `namespace "`+namespace+`" is being deleted since`, "namespace", namespace)
	says(t, "and waits for: "+held, "namespace", namespace)

	r := lodestone(t, "move", "data", "-n", namespace, "--target-cluster", "west").ends(t, refused)
	assert.Equal(t, "error: claim "+namespace+"/data is being deleted with namespace "+namespace+", so it is not moved\n", r.stderr)
	gone := ` in namespace "` + namespace + `", which is being deleted: kubectl lodestone why namespace/` + namespace + " says what it waits for\n"
	assert.Equal(t, `error: there is no pod "web"`+gone, lodestone(t, "why", "pod/web", "-n", namespace).ends(t, failed).stderr)
	assert.Equal(t, `error: there is no pod "web"`+gone, lodestone(t, "release", "pod/web", "-n", namespace).ends(t, failed).stderr)
	assert.Contains(t, lodestone(t, "status").ends(t, done).out, held)
	hold("")
	await.Until(t, "the namespace is gone", func() bool {
		_, err := bed.Home.Client().CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return err != nil
	})
}

// What somebody does to a volume by hand is explained, and loses nothing.
func TestAVolumeThatIsDeletedByHandIsExplained(t *testing.T) {
	testbed.NotInShort(t)
	peered(t)
	namespace := openNamespace(t)
	ctx, volumes := t.Context(), bed.Home.Client().CoreV1().PersistentVolumes()
	volume := volumeInWest(t, namespace, "data")
	require.NoError(t, volumes.Delete(ctx, volume, metav1.DeleteOptions{}))
	says(t, `claim "data" is bound, but somebody deleted its volume "`+volume+`": pods go on with it and the data stays`, "pvc/data", "-n",
		namespace)
	assert.Contains(t, lodestone(t, "status", "-n", namespace).ends(t, done).out, "somebody deleted its volume")
	assert.Contains(t, lodestone(t, "why", "-n", namespace).ends(t, done).out, "somebody deleted its volume")
	podInWest(t, namespace, "again", "data")
	endPod(t, namespace, "again")

	shadow := claimOf(t, bed.West, namespace, "data")
	_, err := bed.Home.Kubectl(ctx, "", "patch", "pv", volume, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	require.NoError(t, err)
	await.Until(t, "the claim is Lost", func() bool { return claimOf(t, bed.Home, namespace, "data").Status.Phase == corev1.ClaimLost })
	says(t, `claim "data" is Lost, because somebody deleted its volume "`+volume+`" and took its finalizers off; Lodestone has not deleted the data`,
		"pvc/data", "-n", namespace)
	await.Never(t, "the data is deleted", func() bool {
		now := claimOf(t, bed.West, namespace, "data")
		return now.UID != shadow.UID || now.DeletionTimestamp != nil
	})
	dropShadow(t, namespace, "data")
}
