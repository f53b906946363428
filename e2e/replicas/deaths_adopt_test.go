package replicas

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestALostHomeIsAdoptedWhereverTheCommandDies runs the command again whenever it has died, until it has done all.
func TestALostHomeIsAdoptedWhereverTheCommandDies(t *testing.T) { adoptsWhereverItDies(t, "") }

// TestASuccessorGetsAllWhereverTheCommandDies does that for a new home cluster.
func TestASuccessorGetsAllWhereverTheCommandDies(t *testing.T) { adoptsWhereverItDies(t, "heir") }

// adoptsWhereverItDies has a home cluster of a name get the namespaces, or west itself without one.
func adoptsWhereverItDies(t *testing.T, heir string) {
	t.Helper()
	long(t)
	copied, pairs, there := space(t), space(t), space(t)
	counts(t, copied, virtual, keys.Home)
	countsInTwo(t, pairs, keys.Home)
	counts(t, there, virtual, "west")
	of := map[string]*v1alpha1.VolumeReplica{
		copied: replicate(t, copied, "west"),
		pairs:  replicate(t, pairs, "west", func(r *v1alpha1.VolumeReplica) { r.Spec.Claims = []string{"data", "wal"} }),
	}
	newest := map[string]string{}
	for namespace, made := range of {
		sealed(t, made, time.Time{})
		newest[namespace] = pause(t, made).Status.Standbys[0].Versions[0].Name
	}
	home, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	kept := await.Claim(t, bed.West.Client(), there, "data")
	if heir != "" {
		must.Create(t, bed.Agents.HomeClusters(), &remotev1alpha1.HomeCluster{ObjectMeta: metav1.ObjectMeta{Name: heir},
			Spec: remotev1alpha1.HomeClusterSpec{Succeeds: home, ClusterUID: "of-" + heir,
				Namespaces: remotev1alpha1.NamespacePolicy{Names: []string{"*"}}}})
	}
	homeIsLost(t, home)

	g := newGate(t, "kubectl-lodestone")
	g.each = true
	kubeconfig := westThrough(t, g)
	for done := false; !done; {
		g.open()
		code, _, said := pluginWith(t, kubeconfig, "adopt", home, "--context", bed.West.Name(), "--yes")
		select {
		case where := <-g.died:
			t.Logf("it dies at: %s", where)
			require.Less(t, g.deaths(), 100, "it goes on where it was stopped")
		default:
			// The last write may have been carried out: then nothing is left of home, and the command says that.
			if done = true; code != 0 {
				require.Contains(t, said, "HomeCluster")
				_, err := bed.Agents.HomeClusters().Get(t.Context(), home, metav1.GetOptions{})
				require.Error(t, err, said)
			}
		}
	}
	t.Logf("it died %d times", g.deaths())

	same := await.Claim(t, bed.West.Client(), there, "data")
	assert.Equal(t, kept.UID, same.UID)
	assert.NotContains(t, same.Finalizers, keys.BackingFinalizer)
	goesOn(t, there, counted(t, bed.FolderOf(t, bed.West, there, "data")))
	assert.Equal(t, newest[copied], await.Claim(t, bed.West.Client(), copied, "data").Annotations[keys.AdoptedFrom])
	goesOn(t, copied, counted(t, contentOf(t, bed.West, westDriver, copied, newest[copied])))
	has := versionIsOfOneMoment(t, pairs, newest[pairs])
	must.Create(t, bed.West.Client().CoreV1().Pods(pairs), pair(pairs, "own", "data", "wal"))
	await.Until(t, "a pod of west counts on in both", func() bool {
		data, wal := bed.FolderOf(t, bed.West, pairs, "data"), bed.FolderOf(t, bed.West, pairs, "wal")
		return data != "" && wal != "" && counted(t, data) > has && counted(t, wal) > has
	}, func() any { return await.Events(t, bed.West.Client(), pairs) })
	assert.NoFileExists(t, filepath.Join(bed.FolderOf(t, bed.West, pairs, "data"), "mixed"))
	for _, namespace := range []string{copied, pairs, there} {
		bounds := must.Kubectl(t, bed.West, "", "get", "resourcequotas,limitranges", "-n", namespace, "-l", keys.HomeID+"="+home, "-o", "name")
		assert.Empty(t, bounds)
		owned := must.Get(t, bed.West.Client().CoreV1().Namespaces(), namespace)
		assert.Equal(t, heir, owned.Labels[keys.HomeID])
		if heir != "" {
			assert.Equal(t, []string{heir + "/" + namespace, "of-" + heir}, []string{owned.Annotations[keys.MadeFor],
				owned.Annotations[keys.HomeUID]})
		}
	}
	if heir != "" {
		must.Delete(t, bed.Agents.HomeClusters(), heir)
	}
	homeComesBack(t, home)
	for _, namespace := range []string{copied, pairs, there} {
		must.Delete(t, bed.West.Client().CoreV1().Namespaces(), namespace)
	}
}

// westThrough writes a kubeconfig of west whose requests go through a gate.
func westThrough(t *testing.T, g *gate) (path string) {
	t.Helper()
	direct, err := contexts()
	require.NoError(t, err)
	config, err := clientcmd.LoadFromFile(direct)
	require.NoError(t, err)
	west := config.Clusters[bed.West.Name()]
	west.Server, west.CertificateAuthorityData = g.servers[bed.West.Name()].URL, g.certificate(bed.West.Name())
	content, err := clientcmd.Write(*config)
	require.NoError(t, err)
	path = filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	return path
}
