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

	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/doctor"
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
