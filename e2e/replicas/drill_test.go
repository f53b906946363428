package replicas

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// drill starts a pod that writes lines of its own behind the log in a claim, and may run anywhere.
func drill(t *testing.T, namespace, claim string) {
	t.Helper()
	pod := fabric.NewPod(namespace, claim, claim)
	pod.Spec.Containers = []corev1.Container{{
		Name: "app", Image: processes.Shell, Command: []string{"sh", "-c", `while :; do echo drill >> /data/log; sleep 0.05; done`},
		VolumeMounts: []corev1.VolumeMount{{Name: claim, MountPath: "/data"}},
	}}
	pod.Spec.Tolerations = []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists}}
	must.Create(t, bed.Home.Client().CoreV1().Pods(namespace), pod)
}

// drilled waits until the pod of a drill has written behind what its claim had, and returns how far the application had counted there,
// and where that is.
func drilled(t *testing.T, namespace, claim string) (had int, at string) {
	t.Helper()
	var lines []string
	await.Until(t, "the pod of "+claim+" writes on", func() bool {
		if at = bed.Folder(t, namespace, claim); at == "" {
			return false
		}
		data, err := os.ReadFile(filepath.Join(at, "log"))
		lines = strings.Split(strings.TrimSpace(string(data)), "\n")
		return err == nil && len(lines) > 3 && slices.Equal(lines[len(lines)-2:], []string{"drill", "drill"})
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	for had < len(lines) && lines[had] == fmt.Sprint(had+1) {
		had++
	}
	for i, line := range lines[had:] {
		require.Equal(t, "drill", line, "line %d of %s", had+i+1, at)
	}
	return had, at
}

// madeOf makes a claim from a version of a VolumeReplica.
func madeOf(t *testing.T, namespace, name, replica, version string) {
	t.Helper()
	claim := fabric.NewClaim(namespace, name, virtual)
	claim.Spec.DataSourceRef = &corev1.TypedObjectReference{APIGroup: ptr.To("lodestone.dev"), Kind: "VolumeReplica", Name: replica}
	if version != "" {
		claim.Annotations = map[string]string{keys.ReplicaVersion: version}
	}
	must.Create(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), claim)
}

// told waits until an event of a claim says something.
func told(t *testing.T, namespace, claim, text string) {
	t.Helper()
	await.Until(t, "claim "+claim+" is told: "+text, func() bool {
		list := must.List(t, bed.Home.Client().CoreV1().Events(namespace))
		return slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.InvolvedObject.Name == claim && strings.Contains(e.Message, text)
		})
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
}

// versionsOf are the names of the versions of a replica, the newest first.
func versionsOf(r *v1alpha1.VolumeReplica) (names []string) {
	for _, v := range r.Status.Standbys[0].Versions {
		names = append(names, v.Name)
	}
	return names
}

func TestADrillStartsWithAVersionWhileReplicationGoesOn(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	counts(t, namespace, virtual, keys.Home)
	made := replicate(t, namespace, "west")
	now := sealed(t, made, time.Time{})
	version := now.Status.Standbys[0].Versions[0].Name
	has := counted(t, contentOf(t, bed.West, westDriver, namespace, version))
	as := editor(t, namespace)

	code, out, said := plugin(t, append([]string{"failover", "data", "--test", "--dry-run"}, as...)...)
	require.Zero(t, code, said)
	assert.Contains(t, out, "persistentvolumeclaim/data-drill would be created: it has what claim data had at ")
	assert.Nil(t, await.Claim(t, bed.Home.Client(), namespace, "data-drill"))
	code, _, said = plugin(t, append([]string{"failover", "data", "--test", "--version", "nothing"}, as...)...)
	assert.Equal(t, 3, code)
	assert.Contains(t, said, `has no version "nothing"; there are: `+version)
	code, out, said = plugin(t, append([]string{"failover", "data", "--test", "--version", version}, as...)...)
	require.Zero(t, code, said)
	assert.Contains(t, out, "a pod like that of the application, with data-drill in place of data, is scheduled to cluster west; "+
		"kubectl delete pvc data-drill -n "+namespace+" removes what was made, and no version\n")
	code, _, said = plugin(t, append([]string{"failover", "deployment/data", "--test"}, as...)...)
	assert.Equal(t, 3, code)
	assert.Contains(t, said, `there is a claim "data-drill" in namespace `+namespace+` already: `)

	code, out, said = plugin(t, append([]string{"replicate", "status", "data"}, as...)...)
	require.Zero(t, code, said)
	assert.Contains(t, out, "\nclaim "+namespace+"/data-drill is made from "+version+" of VolumeReplica data\n")

	// The version stays as long as no pod has used the claim.
	for range 2 {
		now = sealed(t, made, now.Status.Standbys[0].Sealed.Time)
	}
	now = until(t, "it is kept beside those that are wanted", made, func(now *v1alpha1.VolumeReplica) bool {
		names := versionsOf(now)
		return len(names) == 3 && names[2] == version
	})
	drill(t, namespace, "data-drill")
	had, at := drilled(t, namespace, "data-drill")
	assert.Equal(t, has, had, "it has what the version has")
	assert.True(t, strings.HasPrefix(at, filepath.Join(bed.Disks.Root, westDriver)), at)

	// Replication goes on, and nobody else has what the drill writes.
	now = sealed(t, made, now.Status.Standbys[0].Sealed.Time)
	newest := counted(t, contentOf(t, bed.West, westDriver, namespace, versionsOf(now)[0]))
	assert.Greater(t, newest, had)
	assert.Greater(t, beyond(t, namespace, newest), had)
	until(t, "the version goes once the drill has its volume", made, func(now *v1alpha1.VolumeReplica) bool {
		return !slices.Contains(versionsOf(now), version)
	})
	again, _ := drilled(t, namespace, "data-drill")
	assert.Equal(t, had, again)

	core := bed.Home.Client().CoreV1()
	must.Delete(t, core.Pods(namespace), "data-drill")
	must.Delete(t, core.PersistentVolumeClaims(namespace), "data-drill")
	await.Until(t, "its volume is gone", func() bool {
		_, err := os.Stat(at)
		return os.IsNotExist(err)
	})
	for _, name := range versionsOf(sealed(t, made, time.Time{})) {
		assert.Positive(t, counted(t, contentOf(t, bed.West, westDriver, namespace, name)), "versions stay")
	}
	removes(t, made)
}

func TestADrillIsRefusedInWordsWhereItCannotBe(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	namespace, other := space(t), space(t)
	counts(t, namespace, virtual, keys.Home)
	made := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Spec.RPO.Duration = time.Hour })
	madeOf(t, namespace, "early", "data", "")
	told(t, namespace, "early", `VolumeReplica "data"`)
	version := sealed(t, made, time.Time{}).Status.Standbys[0].Versions[0].Name
	await.Until(t, "the claim is given the first version", func() bool {
		early := await.Claim(t, bed.Home.Client(), namespace, "early")
		return early.Annotations[keys.ReplicaVersion] == version && early.Annotations[keys.SourceCluster] == "west"
	})
	madeOf(t, namespace, "gone", "data", "nothing")
	told(t, namespace, "gone", `VolumeReplica "data" has no version "nothing", which this claim is to be made from: delete this claim, and `+
		"make one from a version in its status")
	madeOf(t, other, "foreign", "data", version)
	told(t, other, "foreign", `there is no VolumeReplica "data" in namespace `+other+" that has begun")

	// Somebody deletes what sealed the version.
	must.Kubectl(t, bed.West, "", "delete", "volumesnapshot", "-n", namespace, version)
	await.Until(t, "no pod goes there", func() bool {
		return await.Claim(t, bed.Home.Client(), namespace, "early").Annotations[keys.SourceCluster] == ""
	})
	removes(t, made)
}
