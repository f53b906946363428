package mtls_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/e2e/must"
	extender "github.com/lodestone-storage/lodestone/extender/app"
)

// issuer and certificate have the fields of cert-manager.io/v1 that the component
// may use, with cert-manager's names.
type issuer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SelfSigned *struct{} `json:"selfSigned,omitempty"`
		CA         *struct {
			SecretName string `json:"secretName"`
		} `json:"ca,omitempty"`
	} `json:"spec"`
}

type certificate struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		SecretName  string          `json:"secretName"`
		CommonName  string          `json:"commonName,omitempty"`
		Duration    metav1.Duration `json:"duration"`
		RenewBefore metav1.Duration `json:"renewBefore"`
		DNSNames    []string        `json:"dnsNames,omitempty"`
		IPAddresses []string        `json:"ipAddresses,omitempty"`
		IsCA        bool            `json:"isCA,omitempty"`
		Usages      []string        `json:"usages,omitempty"`
		PrivateKey  struct {
			Algorithm      string `json:"algorithm"`
			Size           int    `json:"size"`
			RotationPolicy string `json:"rotationPolicy"`
		} `json:"privateKey"`
		IssuerRef struct {
			Group string `json:"group"`
			Kind  string `json:"kind"`
			Name  string `json:"name"`
		} `json:"issuerRef"`
	} `json:"spec"`
}

// objects returns those of a file that are of one kind, read strictly.
func objects[T any](t *testing.T, path, kind string) map[string]T {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	found := map[string]T{}
	for reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(content))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			require.NotEmpty(t, found, "no %s in %s", kind, path)
			return found
		}
		require.NoError(t, err)
		var about metav1.PartialObjectMetadata
		require.NoError(t, yaml.Unmarshal(document, &about))
		if about.Kind != kind {
			continue
		}
		var object T
		require.NoError(t, yaml.UnmarshalStrict(document, &object))
		found[about.Name] = object
	}
}

func TestCertManagerMakesTheSameSecrets(t *testing.T) {
	component := func(file string) string { return deploy("components", "mtls-cert-manager", file) }
	issuers := objects[issuer](t, component("authority.yaml"), "Issuer")
	made := objects[certificate](t, component("certificates.yaml"), "Certificate")
	for name, authority := range objects[certificate](t, component("authority.yaml"), "Certificate") {
		made[name] = authority
	}
	require.Len(t, made, 3)
	for name, certificate := range made {
		assert.Equal(t, "cert-manager.io/v1", certificate.APIVersion)
		assert.Equal(t, system, certificate.Namespace)
		assert.Equal(t, name, certificate.Spec.SecretName)
		assert.Equal(t, "cert-manager.io", certificate.Spec.IssuerRef.Group)
		assert.Contains(t, issuers, certificate.Spec.IssuerRef.Name)
		assert.Less(t, certificate.Spec.RenewBefore.Duration, certificate.Spec.Duration.Duration)
		assert.GreaterOrEqual(t, certificate.Spec.RenewBefore.Duration, 30*24*time.Hour)
	}
	authority, server, client := made[extender.AuthoritySecret], made[extender.ServerSecret], made[extender.ClientSecret]
	assert.True(t, authority.Spec.IsCA)
	assert.NotNil(t, issuers[authority.Spec.IssuerRef.Name].Spec.SelfSigned)
	for _, leaf := range []certificate{server, client} {
		of := issuers[leaf.Spec.IssuerRef.Name].Spec.CA
		require.NotNil(t, of)
		assert.Equal(t, authority.Spec.SecretName, of.SecretName)
	}
	assert.Contains(t, server.Spec.DNSNames, "lodestone-extender.lodestone-system.svc", "serverName of the example")
	assert.Contains(t, server.Spec.Usages, "server auth")
	assert.NotContains(t, server.Spec.Usages, "client auth", "it must not pass for a client")
	assert.Contains(t, client.Spec.Usages, "client auth")
	assert.NotContains(t, client.Spec.Usages, "server auth")

	deployment := objects[appsv1.Deployment](t, deploy("base", "extender", "deployment.yaml"), "Deployment")["lodestone-extender"]
	assert.Contains(t, deployment.Spec.Template.Spec.Containers[0].Args, "--client-name="+client.Spec.CommonName)
	assert.Equal(t, server.Spec.SecretName, deployment.Spec.Template.Spec.Volumes[0].Secret.SecretName)
}

func TestTheHourlyRunIsLikeTheFirst(t *testing.T) {
	workload := func(file string) string { return deploy("components", "mtls", "workload", file) }
	job := objects[batchv1.Job](t, workload("job.yaml"), "Job")[certificated]
	hourly := objects[batchv1.CronJob](t, workload("cronjob.yaml"), "CronJob")[certificated]
	assert.Equal(t, job.Spec.Template, hourly.Spec.JobTemplate.Spec.Template)
	require.NotNil(t, job.Spec.TTLSecondsAfterFinished, "a Job that stays cannot be applied with another image")
	assert.EqualValues(t, 3600, *job.Spec.TTLSecondsAfterFinished, "until the hourly run has left a log of its own")
	assert.Equal(t, corev1.RestartPolicyNever, job.Spec.Template.Spec.RestartPolicy, "the log of a pod that failed goes with its restart")
	require.NotNil(t, hourly.Spec.FailedJobsHistoryLimit)
	assert.Positive(t, *hourly.Spec.FailedJobsHistoryLimit)
	assert.Equal(t, extender.NewCertificatesOptions().AuthorityNamespace, job.Namespace)
}

// clientOf returns a client with the rights of a ServiceAccount.
func (w *world) clientOf(namespace, name string) kubernetes.Interface {
	w.t.Helper()
	client, err := kubernetes.NewForConfig(w.account(namespace, name))
	require.NoError(w.t, err)
	return client
}

// requireFewRights checks who may read the authority's key, and that who makes
// the certificates may do nothing else.
func (w *world) requireFewRights() {
	w.t.Helper()
	ctx := w.t.Context()
	for _, name := range []string{"lodestone-provisioner", "lodestone-extender"} {
		_, err := w.clientOf(system, name).CoreV1().Secrets(certificated).Get(ctx, extender.AuthoritySecret, metav1.GetOptions{})
		assert.True(w.t, apierrors.IsForbidden(err), "%s reads the authority: %v", name, err)
	}
	job := w.clientOf(certificated, certificated).CoreV1()
	for _, namespace := range []string{system, certificated} {
		_, err := job.Secrets(namespace).List(ctx, metav1.ListOptions{})
		assert.True(w.t, apierrors.IsForbidden(err), "list Secrets of %s: %v", namespace, err)
		_, err = job.Secrets(namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
		assert.True(w.t, apierrors.IsForbidden(err), "make a Secret in %s: %v", namespace, err)
	}
	_, err := job.Secrets(certificated).Get(ctx, extender.ServerSecret, metav1.GetOptions{})
	assert.True(w.t, apierrors.IsForbidden(err), "%v", err)

	// What the manifests hold, applied again, leaves the Secrets filled.
	w.apply()
}

// requireAdmitted checks that the pod of the Job is one that its namespace admits.
func (w *world) requireAdmitted() {
	w.t.Helper()
	job := must.Get(w.t, w.Client().BatchV1().Jobs(certificated), certificated)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "like-the-job"}, Spec: job.Spec.Template.Spec}
	_, err := w.Client().CoreV1().Pods(certificated).Create(w.t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	require.NoError(w.t, err)
	// It names a command of the program.
	command, flags, err := extender.NewCommand().Find(pod.Spec.Containers[0].Args)
	require.NoError(w.t, err)
	assert.Equal(w.t, "certificates", command.Name())
	assert.NoError(w.t, command.ParseFlags(flags))
}
