package replicas

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cmd"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// contexts is a kubeconfig of both clusters.
var contexts = sync.OnceValues(func() (string, error) { return bed.Contexts() })

// plugin runs the plugin and returns its exit code and what it wrote.
func plugin(t *testing.T, args ...string) (code int, out, said string) {
	t.Helper()
	kubeconfig, err := contexts()
	require.NoError(t, err)
	return pluginWith(t, kubeconfig, args...)
}

// pluginWith does the same with another kubeconfig.
func pluginWith(t *testing.T, kubeconfig string, args ...string) (code int, out, said string) {
	t.Helper()
	streams, _, stdout, stderr := genericiooptions.NewTestIOStreams()
	code = cmd.Run(t.Context(), streams, append(args, "--kubeconfig", kubeconfig)...)
	t.Logf("$ kubectl lodestone %s\n%s%s(exit code %d)", strings.Join(args, " "), stderr, stdout, code)
	return code, stdout.String(), stderr.String()
}

// editor gives a user the rights in a namespace that people have who work there, and returns the flags to be that user.
func editor(t *testing.T, namespace string) []string {
	t.Helper()
	must.Kubectl(t, bed.Home, "", "create", "rolebinding", "editor", "-n", namespace, "--clusterrole=edit", "--user=editor")
	return []string{"-n", namespace, "--as", "editor"}
}

func replicasOf(t *testing.T, namespace string) []v1alpha1.VolumeReplica {
	t.Helper()
	list := must.List(t, objects(t).Replicas(namespace))
	return list.Items
}

func TestThePluginKeepsACopyOfAClaim(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	as := editor(t, namespace)

	code, out, said := plugin(t, "replicate", "data", "-n", namespace, "--to", "west", "--dry-run")
	require.Zero(t, code, said)
	assert.Contains(t, out, "would make VolumeReplica data-west: it copies claim data from home to class files.west.test in west, so that "+
		"the newest of 4 versions is at most 15m old\nthe first copy sends up to ")
	code, out, said = plugin(t, append([]string{"replicate", "data", "--to", "west", "--dry-run", "-o", "yaml"}, as...)...)
	require.Zero(t, code, said)
	assert.Contains(t, out, "kind: VolumeReplica")
	assert.Empty(t, replicasOf(t, namespace), "a dry run makes nothing")

	for name, row := range map[string]struct {
		args []string
		code int
		says string
	}{
		"a cluster that is not there": {[]string{"data", "--to", "nowhere"}, 1, `there is no RemoteCluster "nowhere"; there is: west`},
		"a claim that is not there":   {[]string{"absent", "--to", "west"}, 1, `there is no claim "absent" in namespace "` + namespace + `"; there is: data`},
		"where it is":                 {[]string{"data", "--to", keys.Home}, 3, "its data is in the home cluster itself"},
		"a class that is not listed":  {[]string{"data", "--to", "west", "--class", "west-now"}, 3, `does not list real class "west-now"`},
		"a time that is none":         {[]string{"data", "--to", "west", "--rpo", "1s"}, 2, "--rpo 1s is too short"},
	} {
		code, _, said := plugin(t, append([]string{"replicate", "-n", namespace}, row.args...)...)
		assert.Equal(t, row.code, code, name)
		assert.Contains(t, said, row.says, name)
	}
	assert.Empty(t, replicasOf(t, namespace), "what is refused makes nothing")

	// Whoever may work in the namespace needs no other right.
	code, out, said = plugin(t, append([]string{"replicate", "deployment/data", "--to", "west", "--rpo", "1h", "--keep", "2",
		"--bandwidth-limit", "50Mi", "--wait"}, as...)...)
	require.Zero(t, code, said)
	assert.Contains(t, out, "volumereplica/data-west created\ncluster west has a copy of claim \"data\", ")
	assert.Contains(t, out, " old (version 1); ")
	assert.Contains(t, said, "waiting for the first copy of claim data (")
	assert.Contains(t, said, "): point 1: ")
	made := replicasOf(t, namespace)
	require.Len(t, made, 1)
	assert.EqualValues(t, 2, made[0].Spec.Versions.Keep)
	assert.Equal(t, "50Mi", made[0].Spec.BandwidthLimit.String())
	code, _, said = plugin(t, append([]string{"replicate", "data", "--to", "west"}, as...)...)
	assert.Equal(t, 3, code)
	assert.Contains(t, said, `VolumeReplica "data-west" keeps a copy of it in cluster "west" already`)
	code, out, _ = plugin(t, append([]string{"replicate", "deployment/data", "--to", "west"}, as...)...)
	assert.Zero(t, code)
	assert.Equal(t, "nothing to do: all claims have a copy there\n", out)

	code, out, _ = plugin(t, append([]string{"replicate", "status"}, as...)...)
	require.Zero(t, code)
	assert.Regexp(t, `(?m)^REPLICA +CLAIM +DATA +STANDBY +VERSION +LAG +RPO +STATE$`, out)
	assert.Regexp(t, `(?m)^data-west +data +home +west +1 +\S+ +1h +Sealed$`, out)
	code, out, _ = plugin(t, append([]string{"replicate", "status", "pvc/data", "-o", "wide"}, as...)...)
	require.Zero(t, code)
	assert.Contains(t, out, "files.west.test")
	code, out, _ = plugin(t, append([]string{"replicate", "status", "data", "-o", "json"}, as...)...)
	require.Zero(t, code)
	var read v1alpha1.VolumeReplica
	require.NoError(t, json.Unmarshal([]byte(out), &read))
	assert.Equal(t, "VolumeReplica data-west", read.Kind+" "+read.Name)
	_, out, _ = plugin(t, "replicate", "status", "-A", "-o", "name")
	assert.Contains(t, out, "volumereplica.lodestone.dev/data-west\n")

	// The whole status has it, too.
	code, out, said = plugin(t, "status", "-n", namespace)
	require.Zero(t, code, said)
	assert.Regexp(t, `(?m)^`+namespace+` +data-west +data +home +west +1 +\S+ +1h +Sealed$`, out)
	_, out, _ = plugin(t, "status", "-n", namespace, "-o", "json")
	var all struct{ Replicas []replica.Copy }
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.Len(t, all.Replicas, 1)
	shown := all.Replicas[0]
	assert.Equal(t, "data home west files.west.test Sealed 1", fmt.Sprint(shown.Claim, " ", shown.Primary, " ", shown.Standby, " ",
		shown.Class, " ", shown.State, " ", shown.Version))
	assert.True(t, shown.Healthy)
	assert.Equal(t, read.Status.Standbys[0].Sealed.UTC(), shown.Sealed.UTC())

	code, out, _ = plugin(t, append([]string{"replicate", "pause", "data"}, as...)...)
	require.Zero(t, code)
	assert.Equal(t, "volumereplica/data-west: asked to pause\n", out)
	says(t, &made[0], "Paused", "spec.paused is set")
	_, out, _ = plugin(t, append([]string{"replicate", "status"}, as...)...)
	assert.Contains(t, out, "Paused\n\ndata-west: no point is made: spec.paused is set\n")
	code, _, _ = plugin(t, append([]string{"replicate", "resume", "pvc/data", "-o", "yaml"}, as...)...)
	require.Zero(t, code)
	until(t, "it goes on", &made[0], func(now *v1alpha1.VolumeReplica) bool { return !now.Spec.Paused })

	code, _, said = plugin(t, append([]string{"replicate", "delete", "data"}, as...)...)
	assert.Equal(t, 3, code, "nothing was typed")
	assert.Contains(t, said, "The copy of claim "+namespace+"/data in cluster west goes, with its sealed versions (1).")
	require.Len(t, replicasOf(t, namespace), 1)
	code, out, said = plugin(t, append([]string{"replicate", "delete", "data", "--yes"}, as...)...)
	require.Zero(t, code, said)
	assert.Equal(t, "volumereplica/data-west: asked to delete\n", out)
	await.Until(t, "nothing is left of it", func() bool { return len(replicasOf(t, namespace)) == 0 && len(left(t, &made[0])) == 0 })
}

func TestThePluginStopsWaitingForACopyThatCannotBe(t *testing.T) {
	t.Parallel()
	namespace := space(t)
	// The plugin does not know which snapshots there are in west.
	counts(t, namespace, fabric.Class, "west")
	code, out, said := plugin(t, "replicate", "data", "-n", namespace, "--to", "home", "--name", "copy", "--wait")
	assert.Equal(t, 3, code)
	assert.Equal(t, "volumereplica/copy created\n", out)
	assert.Contains(t, said, `data is not replicated: no snapshot can be taken of claim "data", for cluster west has no VolumeSnapshotClass`)
	assert.Contains(t, said, "kubectl lodestone replicate delete copy -n "+namespace+" gives it up")
}

// firstLine returns the sentence of why.
func firstLine(t *testing.T, args ...string) string {
	t.Helper()
	code, out, said := plugin(t, append([]string{"why"}, args...)...)
	require.Zero(t, code, said)
	line, _, _ := strings.Cut(out, "\n")
	return line
}

func TestThePluginSaysWhichCopyThereIsOfALostCluster(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	counts(t, namespace, virtual, "west")
	code, _, said := plugin(t, "replicate", "data", "-n", namespace, "--to", keys.Home, "--rpo", "20s", "--wait")
	require.Zero(t, code, said)
	assert.Equal(t, `claim "data" is bound: its data is in cluster "west"`, firstLine(t, "pvc/data", "-n", namespace))
	_, out, _ := plugin(t, "why", "pvc/data", "-n", namespace)
	assert.Regexp(t, `(?m)^  replica data-home of claim data: version \d+ in the home cluster, \S+ old, RPO 20s$`, out)
	pods := must.List(t, bed.Home.Client().CoreV1().Pods(namespace))
	require.Len(t, pods.Items, 1)

	require.NoError(t, bed.West.PauseAPIServer())
	ended := false
	end := func() {
		if !ended {
			ended = true
			require.NoError(t, bed.West.ResumeAPIServer())
		}
	}
	t.Cleanup(end)
	const has = `; the home cluster has a copy of claim "data", `
	// The next point is due soon, and cannot be made: from then on there is no newer version.
	made := replicasOf(t, namespace)[0]
	says(t, &made, "ClusterAway", "west")
	number := regexp.MustCompile(`-v(\d+)-`).FindStringSubmatch(replicasOf(t, namespace)[0].Status.Standbys[0].Versions[0].Name)
	require.Len(t, number, 2)
	version, use := " (version "+number[1]+")", ": "+replica.Copy{Namespace: namespace, Claim: "data"}.Use()
	await.Until(t, "why says of the claim which copy there is", func() bool {
		line := firstLine(t, "pvc/data", "-n", namespace)
		return strings.Contains(line, `, but its data is in cluster "west", which does not answer: `) && strings.Contains(line, has) &&
			strings.Contains(line, version) && strings.HasSuffix(line, use)
	})
	await.Until(t, "and of the pod", func() bool {
		line := firstLine(t, "pod/"+pods.Items[0].Name, "-n", namespace)
		return strings.Contains(line, `in cluster "west"`) && strings.Contains(line, has) && strings.Contains(line, version) &&
			strings.HasSuffix(line, use)
	})
	_, out, _ = plugin(t, "status", "-n", namespace)
	assert.Regexp(t, `(?m)^`+namespace+` +data-home +data +west +home +`+number[1]+` +\S+ +20s +ClusterAway(, late)?$`, out)
	assert.Contains(t, out, "from being made: "+namespace+"/data-home (ClusterAway")

	// Nobody removes the copy by mistake now.
	code, _, said = plugin(t, "replicate", "delete", "data", "-n", namespace, "--yes")
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "so the copy may be all that is left of it: "+replica.Copy{Namespace: namespace, Claim: "data"}.Use())
	_, out, _ = plugin(t, "doctor")
	assert.Regexp(t, `(?m)^(ok|problem|warning) +replicas +`, out)

	end()
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	await.Until(t, "all is well again", func() bool {
		return firstLine(t, "pvc/data", "-n", namespace) == `claim "data" is bound: its data is in cluster "west"`
	})
	beyond(t, namespace, counted(t, folder(t, namespace)))
}
