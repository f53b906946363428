package replicas

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// freezableScript counts as the application does, and stands still while /hook/freeze exists, of which it says so by /hook/frozen.
const freezableScript = `echo $$ > /hook/pid; rm -f /hook/frozen
n=$(tail -n 1 /data/log 2>/dev/null || true); n=${n:-0}
while :; do
if [ -e /hook/freeze ]; then touch /hook/frozen; while [ -e /hook/freeze ]; do sleep 0.02; done; rm -f /hook/frozen; fi
n=$((n+1)); echo $n >> /data/log; sleep 0.02; done`

// The hooks of that application note when they were called, and how far it had counted by then.
const (
	freezeHook = `touch /hook/freeze; until [ -e /hook/frozen ]; do sleep 0.02; done; echo freeze $(tail -n 1 /data/log) >> /hook/calls`
	thawHook   = `echo thaw $(tail -n 1 /data/log) >> /hook/calls; rm -f /hook/freeze`
)

func hooks(freeze, thaw, timeout string) func(*v1alpha1.VolumeReplica) {
	limit, err := time.ParseDuration(timeout)
	return func(r *v1alpha1.VolumeReplica) {
		if err != nil {
			panic(err)
		}
		r.Spec.Consistency = v1alpha1.ConsistencyFrozen
		r.Spec.Hooks = &v1alpha1.ReplicaHooks{Freeze: []string{"sh", "-c", freeze}, Thaw: []string{"sh", "-c", thaw},
			Timeout: &metav1.Duration{Duration: limit}}
	}
}

// countsUnlessFrozen makes claim data in a cluster, and a Deployment that counts in it unless it is frozen.
func countsUnlessFrozen(t *testing.T, namespace, cluster string) {
	t.Helper()
	core := bed.Home.Client().CoreV1()
	must.Create(t, core.PersistentVolumeClaims(namespace), fabric.NewClaim(namespace, "data", virtual))
	pod := application(namespace, "")
	pod.Spec.Tolerations = []corev1.Toleration{{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists}}
	pod.Spec.Containers[0].Command[2] = freezableScript
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "hook", VolumeSource: corev1.VolumeSource{
		EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "hook", MountPath: "/hook"})
	// Beside it one that has nothing to do with the claim, and is the first.
	pod.Spec.Containers = append([]corev1.Container{{Name: "beside", Image: processes.Shell, Command: []string{"sleep", "3600"}}},
		pod.Spec.Containers...)
	if pod = fabric.AtHome(pod); cluster != keys.Home {
		pod = fabric.InWest(pod)
	}
	deploy(t, namespace, pod.Spec)
	beyond(t, namespace, 5)
}

// scale sets how many pods the Deployment has, and waits until it has.
func scale(t *testing.T, namespace string, n int) {
	t.Helper()
	must.Kubectl(t, bed.Home, "", "scale", "deployment/data", "-n", namespace, "--replicas", strconv.Itoa(n))
	await.Until(t, fmt.Sprintf("there are %d pods", n), func() bool { return len(podsOf(t, namespace)) == n })
}

func podsOf(t *testing.T, namespace string) []corev1.Pod {
	t.Helper()
	pods := must.List(t, bed.Home.Client().CoreV1().Pods(namespace))
	return pods.Items
}

// hookFolder is the folder that stands for volume hook of the application's pod, in whichever cluster that runs.
func hookFolder(t *testing.T, namespace string) string {
	t.Helper()
	var dirs []string
	for _, known := range []*processes.Processes{bed.HomePods, bed.WestPods} {
		found, err := filepath.Glob(filepath.Join(known.Dir, "*", "hook"))
		require.NoError(t, err)
		empty, err := filepath.Glob(filepath.Join(known.Dir, "*", "*", "hook"))
		require.NoError(t, err)
		dirs = append(append(dirs, found...), empty...)
	}
	pods := podsOf(t, namespace)
	require.NotEmpty(t, pods)
	uids := []string{string(pods[0].UID)}
	there := must.List(t, bed.West.Client().CoreV1().Pods(namespace))
	for _, pod := range there.Items {
		uids = append(uids, string(pod.UID))
	}
	i := slices.IndexFunc(dirs, func(dir string) bool {
		return slices.ContainsFunc(uids, func(uid string) bool { return strings.Contains(dir, uid) })
	})
	require.GreaterOrEqual(t, i, 0, "%v %v", uids, dirs)
	return dirs[i]
}

// calls are the calls of the hooks in a folder: freeze or thaw, and how far the application had counted.
func calls(t *testing.T, folder string) (all [][2]string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(folder, "calls"))
	if os.IsNotExist(err) {
		return nil
	}
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		what, number, _ := strings.Cut(line, " ")
		all = append(all, [2]string{what, number})
	}
	return all
}

// bind gives the provisioner the right to run commands in a namespace.
func bind(t *testing.T, namespace string) {
	t.Helper()
	must.Kubectl(t, bed.Home, "", "create", "rolebinding", "lodestone-freeze", "-n", namespace, "--clusterrole=lodestone-freeze",
		"--serviceaccount=lodestone-system:lodestone-provisioner")
}

// event waits for an event on the replica.
func event(t *testing.T, namespace, reason, text string) {
	t.Helper()
	all := func() []string { return await.Events(t, bed.Home.Client(), namespace) }
	await.Until(t, "event "+reason+" says "+text, func() bool {
		return slices.ContainsFunc(all(), func(line string) bool {
			return strings.HasPrefix(line, "Warning VolumeReplica/data "+reason+": ") && strings.Contains(line, text)
		})
	}, func() any { return all() })
}

func TestAFrozenVersionIsOfAMomentAtWhichNothingWasWritten(t *testing.T) {
	for _, primary := range []string{keys.Home, "west"} {
		t.Run(primary, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			countsUnlessFrozen(t, namespace, primary)
			standby, cluster, driver, at := "west", bed.West, westDriver, namespace
			if primary != keys.Home {
				standby, cluster, driver, at = keys.Home, bed.Home, homeDriver, fabric.Storage
			}
			made := replicate(t, namespace, standby, hooks(freezeHook, thawHook, "20s"), func(r *v1alpha1.VolumeReplica) {
				r.Spec.Versions.Keep = 6
			})
			// The provisioner has no right to run anything, and says which command gives it.
			says(t, made, "NotFrozen", "the provisioner may not run commands in namespace "+namespace)
			event(t, namespace, "NotFrozen", "kubectl create rolebinding lodestone-freeze")
			assert.Empty(t, calls(t, hookFolder(t, namespace)))
			now := must.Get(t, objects(t).Replicas(namespace), made.Name)
			command := regexp.MustCompile(`kubectl (create rolebinding .*)`).FindStringSubmatch(now.Status.Conditions[0].Message)
			require.NotNil(t, command, "%v", now.Status.Conditions)
			must.Kubectl(t, bed.Home, "", strings.Fields(command[1])...)

			sealed(t, made, sealed(t, made, time.Time{}).Status.Standbys[0].Sealed.Time)
			now = pause(t, made)
			var frozenAt []int
			all := calls(t, hookFolder(t, namespace))
			t.Log(all)
			for i, call := range all {
				require.Equal(t, []string{"freeze", "thaw"}[i%2], call[0], "%v", all)
				require.Equal(t, all[i-i%2][1], call[1], "nothing is written between freeze and thaw")
				n, err := strconv.Atoi(call[1])
				require.NoError(t, err)
				frozenAt = append(frozenAt, n)
			}
			for _, version := range now.Status.Standbys[0].Versions {
				assert.Equal(t, v1alpha1.VersionFrozen, version.Consistency)
				assert.Contains(t, frozenAt, counted(t, contentOf(t, cluster, driver, at, version.Name)), "of the moment of a freeze")
			}
			beyond(t, namespace, frozenAt[len(frozenAt)-1])

			// Nothing runs: there is nothing to freeze.
			scale(t, namespace, 0)
			resume(t, made)
			until(t, "a version is made while nothing runs", made, func(now *v1alpha1.VolumeReplica) bool {
				return now.Status.Standbys[0].Versions[0].Consistency == v1alpha1.VersionAtRest
			})
			removes(t, made)
		})
	}
}

// resume takes back spec.paused.
func resume(t *testing.T, made *v1alpha1.VolumeReplica) {
	t.Helper()
	must.Patch(t, objects(t).Replicas(made.Namespace), made.Name, types.MergePatchType, []byte(`{"spec":{"paused":false}}`))
}

func setHooks(t *testing.T, made *v1alpha1.VolumeReplica, freeze, thaw, timeout string) {
	t.Helper()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the provisioner writes its status meanwhile
		now := must.Get(t, objects(t).Replicas(made.Namespace), made.Name)
		hooks(freeze, thaw, timeout)(now)
		_, err := objects(t).Replicas(made.Namespace).Update(t.Context(), now, metav1.UpdateOptions{})
		return err
	}))
}

func TestAPointWhoseFreezeFailsIsNoVersionAndTheApplicationGoesOn(t *testing.T) {
	testbed.NotInShort(t)
	for name, row := range map[string]struct {
		freeze, thaw, timeout string
		reason, says          string
		// before and then are done before the replica is made, and after it has said so.
		before, then func(t *testing.T, hook string, now *v1alpha1.VolumeReplica)
	}{
		"it says much, some of which is nobody's to show, and fails after it has frozen": {
			freeze: freezeHook + `; printf 'no \033[31mlock\nhere '; yes | head -c 3000000; exit 3`, thaw: thawHook, timeout: "20s",
			reason: "PointFailed", says: "exited with code 3: no ",
			then: func(t *testing.T, _ string, now *v1alpha1.VolumeReplica) {
				message := now.Status.Conditions[0].Message
				assert.NotContains(t, message, "\033")
				assert.Less(t, len(message), 1500, message)
			},
		},
		"it hangs, and freezes when nobody waits for it any more": {
			freeze: `sleep 6; ` + freezeHook, thaw: thawHook, timeout: "2s", reason: "PointFailed", says: "did not end within 2s",
			then: func(t *testing.T, hook string, _ *v1alpha1.VolumeReplica) {
				await.Until(t, "it is thawed before it freezes, and after", func() bool {
					all := calls(t, hook)
					i := slices.IndexFunc(all, func(call [2]string) bool { return call[0] == "freeze" })
					return i > 0 && all[0][0] == "thaw" && all[len(all)-1][0] == "thaw"
				}, func() any { return calls(t, hook) })
			},
		},
		"the container restarts while the snapshot is taken": {
			freeze: freezeHook + `; (sleep 0.3; kill -9 $(cat /hook/pid)) > /dev/null 2>&1 &`, thaw: thawHook, timeout: "20s",
			reason: "PointFailed", says: "one of its containers restarted, while the snapshot was taken",
		},
		"the thaw fails until somebody mends what is in its way": {
			freeze: freezeHook, thaw: `if [ -e /hook/stuck ]; then echo stuck; exit 1; fi; ` + thawHook, timeout: "20s",
			reason: "ThawFailed", says: `may still be frozen, for its thaw failed, and is tried again: `,
			before: func(t *testing.T, hook string, _ *v1alpha1.VolumeReplica) {
				require.NoError(t, os.WriteFile(filepath.Join(hook, "stuck"), nil, 0o600))
			},
			then: func(t *testing.T, hook string, _ *v1alpha1.VolumeReplica) {
				assert.FileExists(t, filepath.Join(hook, "freeze"))
				require.NoError(t, os.Remove(filepath.Join(hook, "stuck")))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			namespace := space(t)
			countsUnlessFrozen(t, namespace, keys.Home)
			bind(t, namespace)
			hook := hookFolder(t, namespace)
			if row.before != nil {
				row.before(t, hook, nil)
			}
			made := replicate(t, namespace, "west", hooks(row.freeze, row.thaw, row.timeout))
			says(t, made, row.reason, row.says)
			event(t, namespace, row.reason, "pod data-")
			now := must.Get(t, objects(t).Replicas(namespace), made.Name)
			require.Empty(t, now.Status.Standbys[0].Versions, "%+v", now.Status)
			if row.then != nil {
				row.then(t, hook, now)
			}
			beyond(t, namespace, counted(t, folder(t, namespace)))
			setHooks(t, made, freezeHook, thawHook, "20s")
			now = sealed(t, made, time.Time{})
			assert.Equal(t, v1alpha1.VersionFrozen, now.Status.Standbys[0].Versions[0].Consistency)
			assert.Contains(t, now.Status.Conditions[0].Message, "the application was frozen")
			beyond(t, namespace, counted(t, folder(t, namespace)))
			removes(t, made)
		})
	}
}

// TestTheNextProvisionerThawsFirst stops the provisioner while a freeze runs.
func TestTheNextProvisionerThawsFirst(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	countsUnlessFrozen(t, namespace, keys.Home)
	bind(t, namespace)
	hook := hookFolder(t, namespace)
	made := replicate(t, namespace, "west", hooks(freezeHook+`; sleep 5`, thawHook, "60s"))
	await.Until(t, "it is frozen", func() bool { return len(calls(t, hook)) == 1 })
	require.NoError(t, provisioner.Stop())
	var err error
	provisioner, err = bed.StartProvisioner(context.WithoutCancel(t.Context()))
	require.NoError(t, err)
	says(t, made, "PointFailed", "could not be frozen")
	await.Until(t, "it is thawed", func() bool { return calls(t, hook)[1][0] == "thaw" }, func() any { return calls(t, hook) })
	beyond(t, namespace, counted(t, folder(t, namespace)))
	setHooks(t, made, freezeHook, thawHook, "60s")
	sealed(t, made, time.Time{})
	removes(t, made)
}

func TestClaimsOfOneMomentAreFrozenTogether(t *testing.T) {
	testbed.NotInShort(t)
	testbed.NotInShort(t)
	t.Parallel()
	namespace := space(t)
	countsInTwo(t, namespace, keys.Home)
	bind(t, namespace)
	made := replicate(t, namespace, "west", hooks("true", "true", "20s"), func(r *v1alpha1.VolumeReplica) {
		r.Spec.Claims = []string{"data", "wal"}
	})
	now := sealed(t, made, time.Time{})
	version := now.Status.Standbys[0].Versions[0]
	assert.Equal(t, v1alpha1.VersionFrozen, version.Consistency)
	versionIsOfOneMoment(t, namespace, version.Name)
	removes(t, made)
}

// TestOnlyWhoMayRunCommandsSaysWhichAreRun has users try to have commands run in the pods of others.
func TestOnlyWhoMayRunCommandsSaysWhichAreRun(t *testing.T) {
	t.Parallel()
	testbed.Require(t)
	namespace := testbed.Namespace(t, bed.Home)
	must.Kubectl(t, bed.Home, "", "create", "role", "copies", "-n", namespace, "--verb=*", "--resource=volumereplicas.lodestone.dev")
	for user, role := range map[string]string{"copier": "--role=copies", "editor": "--clusterrole=edit"} {
		must.Kubectl(t, bed.Home, "", "create", "rolebinding", user, "-n", namespace, role, "--user="+user)
	}
	as := func(user string) *clients.VolumeMoveClient {
		config := bed.Home.AdminConfig()
		config.Impersonate.UserName = user
		client, err := clients.NewVolumeMoveClient(config)
		require.NoError(t, err)
		return client
	}
	of := func(name string) *v1alpha1.VolumeReplica {
		r := &v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.VolumeReplicaSpec{
			Claims: []string{"data"}, Standbys: []v1alpha1.ReplicaStandby{{Cluster: "west"}}}}
		hooks("true", "true", "20s")(r)
		return r
	}
	refused := func(err error) {
		t.Helper()
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, "only who may run commands in pods of this namespace (create pods/exec) can have hooks run in them")
	}
	copier, editor := as("copier").Replicas(namespace), as("editor").Replicas(namespace)
	_, err := copier.Create(t.Context(), of("a"), metav1.CreateOptions{})
	refused(err)
	plain := of("b")
	plain.Spec.Consistency, plain.Spec.Hooks = "", nil
	plain, err = copier.Create(t.Context(), plain, metav1.CreateOptions{})
	require.NoError(t, err, "without hooks it may")
	frozen := must.Create(t, editor, of("c"))
	patch := func(name, text string) error {
		_, err := copier.Patch(t.Context(), name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
		return err
	}
	refused(patch(plain.Name, `{"spec":{"consistency":"Frozen","hooks":{"freeze":["sh"],"thaw":["sh"]}}}`))
	refused(patch(frozen.Name, `{"spec":{"hooks":{"freeze":["sh","-c","steal"]}}}`))
	refused(patch(frozen.Name, `{"spec":{"hooks":{"container":"other"}}}`))
	require.NoError(t, patch(frozen.Name, `{"spec":{"rpo":"1h"}}`), "what others wrote may stay")
	require.NoError(t, patch(frozen.Name, `{"spec":{"consistency":"Crash","hooks":null}}`), "and be taken away")
	for _, name := range []string{plain.Name, frozen.Name} {
		must.Delete(t, copier, name)
	}
}
