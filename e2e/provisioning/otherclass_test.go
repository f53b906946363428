package provisioning

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// A kube-scheduler that does not ask the extender puts a pod on a virtual node although nothing makes a volume there for its claim.
func TestASchedulerWithoutTheExtenderDoesNotWaitForAVolumeThatNobodyMakes(t *testing.T) {
	namespace := newNamespace(t)
	unasked := schedulerWithoutExtender(t)
	class := makeClass(t, bed.Home, &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "plain-" + rand.String(8)}, Provisioner: "disk.example.com",
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	bed.CreateClaim(t, fabric.NewClaim(namespace, "data", class))
	pod := preferWest(fabric.NewPod(namespace, "db", "data"))
	pod.Spec.SchedulerName = unasked
	bed.CreatePod(t, pod)
	message := await.Event(t, bed.Home.Client(), namespace, "data", "ClaimStaysHome")
	assert.Contains(t, message, "another node is to be chosen than west, which stands for cluster west, where storage class "+class+
		" makes no volumes: have kube-scheduler ask Lodestone's extender")
	// kube-scheduler has stopped waiting, and tries the pod again.
	await.Event(t, bed.Home.Client(), namespace, "db", "FailedScheduling")

	// A choice stays that somebody has said is right.
	must.Patch(t, bed.Home.Client().CoreV1().PersistentVolumeClaims(namespace), "data", types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"`+keys.UsableIn+`":"west"}}}`))
	await.Until(t, "the claim has its node again", func() bool {
		return claimOf(t, bed.Home, namespace, "data").Annotations[keys.SelectedNode] == fabric.WestNode
	})
	await.Always(t, "the claim keeps its node", func() bool {
		return claimOf(t, bed.Home, namespace, "data").Annotations[keys.SelectedNode] == fabric.WestNode
	})
}

// schedulerWithoutExtender starts a second kube-scheduler at home that asks no extender, until the test ends, and returns its name.
func schedulerWithoutExtender(t *testing.T) string {
	t.Helper()
	name := "unasked-" + rand.String(5)
	binary, err := testbed.Binary(t.Context(), os.Stderr)
	require.NoError(t, err)
	address, err := bed.Home.ReserveAddress()
	require.NoError(t, err)
	_, port, _ := strings.Cut(address, ":")
	configuration := filepath.Join(t.TempDir(), "scheduler.yaml")
	require.NoError(t, os.WriteFile(configuration, []byte("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"+
		"clientConnection: {kubeconfig: "+bed.Home.Kubeconfig()+"}\nleaderElection: {leaderElect: false}\n"+
		"profiles: [{schedulerName: "+name+"}]\n"), 0o600))
	program, err := bed.Home.StartProgram(name, binary, "kube-scheduler", "--config="+configuration,
		"--authentication-kubeconfig="+bed.Home.Kubeconfig(), "--authorization-kubeconfig="+bed.Home.Kubeconfig(),
		"--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+t.TempDir())
	require.NoError(t, err)
	t.Cleanup(program.Kill)
	return name
}
