package install

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/doctor"
	plugin "github.com/lodestone-storage/lodestone/kubectl-lodestone/install"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// examined returns what doctor finds, by check. The extender of this bed answers nobody, so there is a problem in any case.
func examined(t *testing.T, args ...string) map[string]doctor.Finding {
	t.Helper()
	out, _ := run(t, home, failed, append([]string{"doctor", "-o", "json"}, args...)...)
	var list struct{ Items []doctor.Finding }
	require.NoError(t, json.Unmarshal([]byte(out), &list))
	found := map[string]doctor.Finding{}
	for _, finding := range list.Items {
		found[finding.Check] = finding
	}
	return found
}

// whatDoctorFinds breaks what is installed, and has install mend it.
func whatDoctorFinds(t *testing.T) {
	found := examined(t)
	assert.Equal(t, doctor.OK, found["manifests"].Level, found["manifests"].Says)
	assert.Equal(t, doctor.OK, found["clocks"].Level, found["clocks"].Says)
	assert.Equal(t, doctor.Problem, found["extender"].Level)
	assert.Equal(t, doctor.Problem, found["certificates"].Level, "the Job of this bed does nothing")
	assert.Equal(t, doctor.Warning, found["programs"].Level, "the images are of another version than this test")

	assert.Equal(t, doctor.OK, found["names"].Level, found["names"].Says)
	for _, written := range []struct{ makes, says, undo []string }{
		{makes: []string{"label", "namespace", "default", keys.Offload + "=yes"},
			says: []string{"namespace default has label " + keys.Offload + "=yes", "kubectl label namespace default " + keys.Offload + "=enabled"},
			undo: []string{"label", "namespace", "default", keys.Offload + "-"}},
		{makes: []string{"annotate", "namespace", "default", keys.OffloadClusters + "=mars"},
			says: []string{`namespace default is open to cluster "mars"`, "correct the annotation"},
			undo: []string{"annotate", "namespace", "default", keys.OffloadClusters + "-"}},
	} {
		must.Kubectl(t, home, "", written.makes...)
		found := examined(t)["names"]
		assert.Equal(t, doctor.Warning, found.Level)
		assert.Contains(t, found.Says, written.says[0])
		assert.Contains(t, found.Do, written.says[1])
		must.Kubectl(t, home, "", written.undo...)
	}
	class := `{"apiVersion":"storage.k8s.io/v1","kind":"StorageClass","metadata":{"name":"mistaken"},"provisioner":"` + keys.Driver +
		`","volumeBindingMode":"WaitForFirstConsumer","parameters":{"` + keys.Clusters + `":"mars"}}`
	must.Kubectl(t, home, class, "apply", "-f", "-")
	assert.Contains(t, examined(t)["names"].Says, `storage class mistaken lists cluster "mars" in parameter `+keys.Clusters)
	must.Kubectl(t, home, "", "delete", "storageclass", "mistaken")

	policies := home.Client().AdmissionregistrationV1().ValidatingAdmissionPolicies()
	must.Delete(t, policies, "lodestone-move-proof")
	must.Kubectl(t, home, "", "patch", "clusterrole", "lodestone-provisioner", "--type=json",
		`-p=[{"op":"remove","path":"/rules/0"}]`)
	found = examined(t)
	assert.Equal(t, doctor.Problem, found["manifests"].Level)
	_, stderr := run(t, home, failed, "doctor")
	assert.Contains(t, stderr, "problems were found")
	out, _ := run(t, home, failed, "doctor")
	assert.Contains(t, out, "are missing: ValidatingAdmissionPolicy lodestone-move-proof")
	assert.Contains(t, out, "are not as this version makes them: ClusterRole lodestone-provisioner")
	assert.Regexp(t, `ClusterRole lodestone-provisioner lacks .*, compared with this plugin, .*; kubectl lodestone install --force-conflicts`,
		out)

	const secret = "a-password-of-west-that-nobody-sees"
	must.Kubectl(t, home, "", "create", "secret", "generic", "west", "-n", system, "--from-literal=kubeconfig="+secret)
	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	examined(t, "--bundle", file)
	must.Kubectl(t, home, "", "delete", "secret", "west", "-n", system)
	files := unpacked(t, file)
	assert.Contains(t, files["lodestone/findings.json"], "lodestone-move-proof")
	assert.Contains(t, files["lodestone/objects/deployments.yaml"], "lodestone-provisioner")
	encoded := strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "=")
	for name, content := range files {
		assert.NotContains(t, content, secret, name)
		assert.NotContains(t, content, encoded, name)
	}

	_, stderr = run(t, home, done, "install", "--tag", tag, "--force-conflicts")
	assert.Regexp(t, `1 objects made, 1 changed, \d+ as they were, 0 removed`, stderr)
	assert.Equal(t, doctor.OK, examined(t)["manifests"].Level)
}

// TestRightsAreComparedWhoeverInstalled applies the objects of a home cluster as kubectl does, with what Helm writes on one of them. That
// a chart has no others is for TestTheChartIsWhatInstallApplies.
func TestRightsAreComparedWhoeverInstalled(t *testing.T) {
	testbed.Require(t)
	built := func(v plugin.Values) (text string) {
		v.Registry, v.Tag, v.Scheduler, v.Certificates, v.Admission = plugin.DefaultRegistry, tag, plugin.Extender, plugin.ByJob, admission
		v.VirtualNodes = ptr.To(true)
		objects, err := plugin.Build(v, false)
		require.NoError(t, err)
		for _, object := range objects {
			content, err := yaml.Marshal(object.Object)
			require.NoError(t, err)
			text += "---\n" + string(content)
		}
		return text
	}
	rights := func() (found []doctor.Finding) {
		out, _ := run(t, west, failed, "doctor", "-o", "json")
		var list struct{ Items []doctor.Finding }
		require.NoError(t, json.Unmarshal([]byte(out), &list))
		for _, finding := range list.Items {
			if finding.Check == "rights" {
				found = append(found, finding)
			}
		}
		return found
	}
	found := rights()
	require.Len(t, found, 1)
	assert.Equal(t, doctor.OK, found[0].Level, "nothing is installed")

	all := built(plugin.Values{Network: ptr.To(true)})
	t.Cleanup(func() { must.Kubectl(t, west, all, "delete", "-f", "-", "--ignore-not-found", "--timeout=150s") })
	must.Kubectl(t, west, all, "apply", "--server-side", "-f", "-")
	found = rights()
	require.Len(t, found, 1)
	assert.Equal(t, doctor.OK, found[0].Level, found[0].Says)
	assert.Regexp(t, `^[2-9]\d roles and bindings give`, found[0].Says)

	must.Kubectl(t, west, "", "annotate", "clusterrole", "lodestone-extender", "meta.helm.sh/release-name=stone",
		"meta.helm.sh/release-namespace=apps")
	must.Kubectl(t, west, "", "patch", "clusterrole", "lodestone-extender", "--type=json",
		`-p=[{"op":"replace","path":"/rules","value":[{"apiGroups":[""],"resources":["secrets"],"verbs":["list","get"]}]}]`)
	must.Kubectl(t, west, "", "patch", "clusterrole", "lodestone-virtualnode", "--type=json",
		`-p=[{"op":"add","path":"/rules/-","value":{"apiGroups":[""],"resources":["secrets"],"verbs":["delete"]}}]`)
	must.Kubectl(t, west, "", "delete", "rolebinding", "lodestone-virtualnode", "-n", "lodestone-network")
	must.Kubectl(t, west, "", "create", "clusterrole", "lodestone-virtualnode-services", "--verb=get", "--resource=pods")
	t.Cleanup(func() { must.Kubectl(t, west, "", "delete", "clusterrole", "lodestone-virtualnode-services") })
	found = rights()
	require.Len(t, found, 4)
	for i, want := range []struct {
		level    doctor.Level
		says, do string
	}{
		{doctor.Problem, `^ClusterRole lodestone-extender lacks .*list and watch .*, and gives get and list secrets too much, `,
			"helm upgrade stone -n apps "},
		{doctor.Warning, "^ClusterRole lodestone-virtualnode gives delete secrets too much, ", "kubectl apply --server-side"},
		{doctor.Warning, "^ClusterRole lodestone-virtualnode-services is there, and nothing that is installed needs it$",
			"kubectl delete clusterrole lodestone-virtualnode-services "},
		{doctor.Problem, "^RoleBinding lodestone-network/lodestone-virtualnode is missing$", "kubectl apply --server-side"},
	} {
		assert.Equal(t, want.level, found[i].Level)
		assert.Regexp(t, want.says, found[i].Says)
		assert.Contains(t, found[i].Do, want.do)
	}
}

// unpacked returns the files of an archive, by name.
func unpacked(t *testing.T, file string) map[string]string {
	t.Helper()
	packed, err := os.Open(file)
	require.NoError(t, err)
	defer packed.Close()
	content, err := gzip.NewReader(packed)
	require.NoError(t, err)
	files, archive := map[string]string{}, tar.NewReader(content)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		text, err := io.ReadAll(archive)
		require.NoError(t, err)
		files[header.Name] = string(text)
	}
}
