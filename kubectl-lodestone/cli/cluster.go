// Package cli has what the commands share: clusters with the user's own rights (ConnectHome,
// ConnectRemote), what home has in a remote cluster (ReadHoldings), exit codes and errors (Refuse,
// Misuse), the question before a change (Ask), and waits (Reporter.Await). Read cluster.go
// first.
package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/clients"
)

// requestTimeout limits each request, so that a cluster that does not answer ends in an error
// message.
const requestTimeout = 15 * time.Second

// Cluster is a cluster that is reached with the user's kubeconfig.
type Cluster struct {
	// Context is the name of its kubeconfig context. Messages use it as the cluster's name.
	Context string
	Config  *rest.Config
	Client  kubernetes.Interface
	Remotes *clients.RemoteClusters
	Remote  *clients.RemoteClient
	Moves   *clients.VolumeMoveClient
	// handedOut: it is not of a kubeconfig. Its owner has handed out the token.
	handedOut bool
}

// ConnectHome returns the cluster that kubectl's own flags select.
func ConnectHome(flags *genericclioptions.ConfigFlags) (*Cluster, error) {
	raw, err := load(flags)
	if err != nil {
		return nil, err
	}
	name := raw.CurrentContext
	if flags.Context != nil && *flags.Context != "" {
		name = *flags.Context
	}
	config, err := flags.ToRawKubeConfigLoader().ClientConfig()
	if err != nil {
		return nil, unusable(flags, err)
	}
	cluster, err := newCluster(name, config)
	if err != nil {
		return nil, unusable(flags, err)
	}
	return cluster, nil
}

// Connect returns the cluster and the namespace that kubectl's own flags select.
func Connect(flags *genericclioptions.ConfigFlags) (*Cluster, string, error) {
	home, err := ConnectHome(flags)
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, "", Misuse("the namespace cannot be found: %w; give -n", err)
	}
	return home, namespace, nil
}

// ConnectRemote returns the cluster of a context of a kubeconfig file; empty: of the context that
// kubectl uses. It sends no request yet.
func ConnectRemote(flags *genericclioptions.ConfigFlags, kubeconfig, name string) (*Cluster, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	if kubeconfig == "" && flags.KubeConfig != nil {
		rules.ExplicitPath = *flags.KubeConfig
	}
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name})
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, Misuse("the kubeconfig of the remote cluster cannot be read: %s; correct --remote-kubeconfig", unread(err))
	}
	known := slices.Sorted(maps.Keys(raw.Contexts))
	if name == "" {
		name = raw.CurrentContext
	}
	switch {
	case name == "" && len(known) > 0:
		return nil, Misuse("the kubeconfig of the remote cluster has no current context: choose one with --remote-context; there %s",
			ThereAre(known, "", "kubectl config view"))
	case raw.Contexts[name] == nil:
		return nil, notIn("context", name, known)
	}
	config, err := loader.ClientConfig()
	if err != nil {
		return nil, Misuse("context %q cannot be used: %w; correct the kubeconfig", name, err)
	}
	cluster, err := newCluster(name, config)
	if err != nil {
		return nil, Misuse("context %q cannot be used: %w; correct the kubeconfig", name, err)
	}
	return cluster, nil
}

func newCluster(name string, config *rest.Config) (*Cluster, error) {
	if name == "" {
		name = config.Host
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "kubectl-lodestone"
	if config.Timeout == 0 {
		config.Timeout = requestTimeout
	}
	config.QPS, config.Burst = 50, 100
	// Warnings of an API server are for authors of manifests.
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err //nolint:wrapcheck // the callers say which kubeconfig it is
	}
	remotes, err := clients.NewRemoteClusters(config)
	if err != nil {
		return nil, err
	}
	remote, err := clients.NewRemoteClient(config)
	if err != nil {
		return nil, err
	}
	moves, err := clients.NewVolumeMoveClient(config)
	if err != nil {
		return nil, err
	}
	return &Cluster{Context: name, Config: config, Client: client, Remotes: remotes, Remote: remote, Moves: moves}, nil
}

// UID returns the UID of the cluster's namespace kube-system, which identifies the cluster.
func (c *Cluster) UID(ctx context.Context) (string, error) {
	system, err := c.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return "", c.Explain("get namespace kube-system", err)
	}
	return string(system.UID), nil
}

// Serves reports whether the API server serves a resource of a group and
// version.
func (c *Cluster) Serves(groupVersion, resource string) (bool, error) {
	list, err := c.Client.Discovery().ServerResourcesForGroupVersion(groupVersion)
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, c.Explain("ask what its API server serves", err)
	}
	for _, r := range list.APIResources {
		if r.Name == resource {
			return true, nil
		}
	}
	return false, nil
}

// Explain turns the error of a request into one sentence that says what to do. doing names the
// request, such as "list nodes". The result wraps errors of the API.
func (c *Cluster) Explain(doing string, err error) error {
	var status apierrors.APIStatus
	var certificate *tls.CertificateVerificationError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("stopped before it could %s in the cluster of context %q; run the same command again to go on: %w", doing, c.Context,
			err)
	case apierrors.IsUnauthorized(err) && c.handedOut:
		return fmt.Errorf("cluster %q does not accept the token that its owner handed out (%w): ask for another one", c.Context, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the cluster of context %q does not accept your credentials (%w): log in again or correct the kubeconfig", c.Context,
			err)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Refuse("you cannot %s in the cluster of context %q: the namespace is being deleted; wait until it is gone, and make it again if "+
			"it is to be used (%w)", doing, c.Context, err)
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota"):
		return fmt.Errorf("cannot %s in the cluster of context %q, because a quota leaves no room: remove what is not needed, or ask for "+
			"more (%w)", doing, c.Context, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("you may not %s in the cluster of context %q: ask its administrator for that right (%w)", doing, c.Context, err)
	case errors.As(err, &status):
		return fmt.Errorf("cannot %s in the cluster of context %q: %w", doing, c.Context, err)
	case errors.As(err, &certificate):
		return fmt.Errorf("the certificate of the cluster of context %q is not the one that the kubeconfig asks for (%s: %w): correct "+
			"certificate-authority-data or tls-server-name there, and see that its address leads to that cluster", c.Context, doing, err)
	}
	var request *url.Error
	if errors.As(err, &request) { // the rest of it is a long address
		err = request.Err
	}
	return fmt.Errorf("the cluster of context %q does not answer (%s: %w): check its address in the kubeconfig and the network", c.Context,
		doing, err)
}

// provisioner is the name of the provisioner's Deployment.
const provisioner = "lodestone-provisioner"

// ProvisionerID returns the cluster ID in the flags of the home cluster's provisioner; empty if it
// uses the default, or if the user may not read its Deployment.
func (c *Cluster) ProvisionerID(ctx context.Context, namespace string) (string, error) {
	deployment, err := c.Client.AppsV1().Deployments(namespace).Get(ctx, provisioner, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", nil
	case err != nil:
		return "", c.Explain("get the Deployment of the provisioner", err)
	}
	return clusterID(deployment.Spec.Template.Spec), nil
}

// HomeID returns the ID of the home cluster: the one in the provisioner's flags, else the default.
func (c *Cluster) HomeID(ctx context.Context, namespace string) (string, error) {
	id, err := c.ProvisionerID(ctx, namespace)
	if err != nil || id != "" {
		return id, err
	}
	uid, err := c.UID(ctx)
	return DefaultID(uid), err
}

// DefaultID returns the ID that a cluster has if no flag sets one.
func DefaultID(uid string) string { return uid[:min(8, len(uid))] }

// clusterID returns the cluster ID in the flags of a provisioner's pod; empty for the default.
func clusterID(pod corev1.PodSpec) string {
	for _, container := range pod.Containers {
		args := slices.Concat(container.Command, container.Args)
		for i, arg := range args {
			flag, value, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
			if flag != "cluster-id" || !strings.HasPrefix(arg, "-") {
				continue
			}
			if !given && i+1 < len(args) {
				value = args[i+1]
			}
			return value
		}
	}
	return ""
}

// Right is permission for one kind of request.
type Right struct {
	Verb string
	// Group is the API group of Resource; Resource may be "resource/subresource".
	Group, Resource string
	// Namespace is empty for what is cluster-wide; Name is empty for any.
	Namespace, Name string
}

// String returns the right in the form of the arguments of kubectl auth can-i.
func (r Right) String() string {
	resource, subresource, _ := strings.Cut(r.Resource, "/")
	resource = schema.GroupResource{Group: r.Group, Resource: resource}.String()
	if subresource != "" {
		resource += "/" + subresource
	}
	text := r.Verb + " " + resource
	if r.Name != "" {
		text += "/" + r.Name
	}
	if r.Namespace != "" {
		text += " -n " + r.Namespace
	}
	return text
}

// Lacking returns those of the rights that the user does not have.
func (c *Cluster) Lacking(ctx context.Context, rights ...Right) ([]Right, error) {
	var lacking []Right
	for _, right := range rights {
		resource, subresource, _ := strings.Cut(right.Resource, "/")
		review, err := c.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: right.Verb, Group: right.Group, Resource: resource, Subresource: subresource, Namespace: right.Namespace, Name: right.Name,
			}},
		}, metav1.CreateOptions{})
		if err != nil {
			return nil, c.Explain("ask for your own rights", err)
		}
		if !review.Status.Allowed {
			lacking = append(lacking, right)
		}
	}
	return lacking, nil
}

// Server is the address of an API server and what its certificate is verified with.
type Server struct {
	URL string
	// CA is the certificate authority in PEM; empty: the system's authorities. If Name is not
	// empty, the certificate must be valid for it instead of the URL's host.
	CA   []byte
	Name string
}

// Server returns the address of this cluster's API server and its authority. A non-empty address or
// ca replaces that of the user's kubeconfig.
func (c *Cluster) Server(address string, ca []byte) (Server, error) {
	config := rest.CopyConfig(c.Config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return Server{}, Misuse("the certificate authority of context %q cannot be read: %w; correct the kubeconfig", c.Context, err)
	}
	server := Server{URL: config.Host, CA: config.CAData, Name: config.ServerName}
	if address != "" {
		server.URL, server.Name = address, ""
	}
	if ca != nil {
		server.CA = ca
	}
	parsed, err := url.Parse(server.URL)
	if err != nil || parsed.Scheme != "https" || parsed.Host == "" {
		return Server{}, Misuse("the address %q is not one of an API server: give --remote-server https://<host>:<port>", server.URL)
	}
	if config.Insecure && ca == nil {
		return Server{}, Misuse("the kubeconfig does not check the certificate of context %q, so credentials could go astray: put "+
			"certificate-authority-data into it, or give --remote-ca-file", c.Context)
	}
	return server, nil
}

// Loopback reports whether only programs of the same machine can reach the server.
func (s Server) Loopback() bool {
	parsed, err := url.Parse(s.URL)
	if err != nil {
		return false
	}
	ip := net.ParseIP(parsed.Hostname())
	return parsed.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}

// String returns the address for messages.
func (s Server) String() string { return fmt.Sprintf("%q", s.URL) }

// load returns the kubeconfig that kubectl's own flags name, after a check that what they name is in it.
func load(flags *genericclioptions.ConfigFlags) (clientcmdapi.Config, error) {
	raw, err := flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return raw, Misuse("the kubeconfig cannot be read: %s; correct --kubeconfig, or KUBECONFIG", unread(err))
	}
	for _, named := range []struct {
		flag  string
		name  *string
		known []string
	}{
		{"context", flags.Context, slices.Sorted(maps.Keys(raw.Contexts))},
		{"cluster", flags.ClusterName, slices.Sorted(maps.Keys(raw.Clusters))},
		{"user", flags.AuthInfoName, slices.Sorted(maps.Keys(raw.AuthInfos))},
	} {
		if name := ptr.Deref(named.name, ""); name != "" && !slices.Contains(named.known, name) {
			return raw, notIn(named.flag, name, named.known)
		}
	}
	if err := checkContext(flags, raw); err != nil {
		return raw, err
	}
	return raw, checkFlags(flags, raw)
}

// Configured says whether there is a kubeconfig, or anything else that leads to a cluster.
func Configured(flags *genericclioptions.ConfigFlags) bool {
	raw, err := flags.ToRawKubeConfigLoader().RawConfig()
	_, outside := rest.InClusterConfig()
	return err != nil || len(raw.Contexts) > 0 || outside == nil || ptr.Deref(flags.APIServer, "") != "" ||
		os.Getenv("KUBERNETES_MASTER") != "" || ptr.Deref(flags.Context, "") != ""
}

// checkContext checks that a context is chosen, and that what it names is there: kubectl's own loader takes a server at
// localhost:8080 instead.
func checkContext(flags *genericclioptions.ConfigFlags, raw clientcmdapi.Config) error {
	if ptr.Deref(flags.APIServer, "") != "" || os.Getenv("KUBERNETES_MASTER") != "" {
		return nil
	}
	known, name := slices.Sorted(maps.Keys(raw.Contexts)), raw.CurrentContext
	if chosen := ptr.Deref(flags.Context, ""); chosen != "" {
		name = chosen
	}
	_, outside := rest.InClusterConfig()
	switch context := raw.Contexts[name]; {
	case len(known) == 0 && outside != nil:
		return Misuse("there is no kubeconfig: give --kubeconfig, or set KUBECONFIG to the path of one")
	case len(known) == 0:
		return nil
	case name == "":
		return Misuse("the kubeconfig has no current context: choose one with --context; there %s", ThereAre(known, "", "kubectl config view"))
	case context == nil:
		return notIn("context", name, known)
	case raw.Clusters[context.Cluster] == nil && ptr.Deref(flags.ClusterName, "") == "":
		return fmt.Errorf("context %q names a cluster that is not there: %w", name, notIn("cluster", context.Cluster,
			slices.Sorted(maps.Keys(raw.Clusters))))
	case context.AuthInfo != "" && raw.AuthInfos[context.AuthInfo] == nil && ptr.Deref(flags.AuthInfoName, "") == "":
		return fmt.Errorf("context %q names a user that is not there: %w", name, notIn("user", context.AuthInfo,
			slices.Sorted(maps.Keys(raw.AuthInfos))))
	}
	return nil
}

// notIn is the error for a name of a context, cluster or user that a kubeconfig does not have.
func notIn(what, name string, known []string) error {
	if len(known) == 0 {
		return Misuse("the kubeconfig has no %s %q, nor any other: correct --kubeconfig, or KUBECONFIG", what, name)
	}
	return Misuse("the kubeconfig has no %s %q; there %s", what, name, ThereAre(known, name, "kubectl config view"))
}

// checkFlags checks the values of kubectl's own flags.
func checkFlags(flags *genericclioptions.ConfigFlags, raw clientcmdapi.Config) error {
	for _, file := range []struct {
		flag string
		path *string
	}{{"certificate-authority", flags.CAFile}, {"client-certificate", flags.CertFile}, {"client-key", flags.KeyFile}} {
		if path := ptr.Deref(file.path, ""); path != "" {
			if _, err := os.ReadFile(path); err != nil {
				return Misuse("--%s cannot be read: %w", file.flag, err)
			}
		}
	}
	if text := ptr.Deref(flags.Timeout, ""); text != "" {
		if timeout, err := clientcmd.ParseTimeout(text); err != nil || timeout < 0 {
			return Misuse("--request-timeout %q is not a time: give one such as 30s, or 0 for that of the command", text)
		}
	}
	if namespace := ptr.Deref(flags.Namespace, ""); namespace != "" && len(validation.IsDNS1123Label(namespace)) > 0 {
		return Misuse("-n %q cannot be a namespace: names have up to 63 lower-case letters, digits and '-'", namespace)
	}
	extra := ptr.Deref(flags.ImpersonateUserExtra, nil)
	for _, one := range extra {
		if key, _, ok := strings.Cut(one, "="); !ok || key == "" {
			return Misuse("--as-user-extra %q is not understood: give KEY=VALUE", one)
		}
	}
	asUser := ptr.Deref(flags.Impersonate, "") != ""
	for _, user := range raw.AuthInfos {
		asUser = asUser || user.Impersonate != ""
	}
	if !asUser && len(extra)+len(ptr.Deref(flags.ImpersonateGroup, nil))+len(ptr.Deref(flags.ImpersonateUID, "")) > 0 {
		return Misuse("--as-group, --as-uid and --as-user-extra say more of the user of --as: give --as, too")
	}
	return nil
}

// unusable says what is wrong with a kubeconfig of which no client can be made.
func unusable(flags *genericclioptions.ConfigFlags, err error) error {
	if address := ptr.Deref(flags.APIServer, ""); address != "" {
		return Misuse("--server %q cannot be used: %w; give https://HOST:PORT", address, err)
	}
	problem := strings.TrimSuffix(strings.TrimPrefix(err.Error(), "invalid configuration: "), ".")
	return Misuse("the kubeconfig cannot be used: %s; correct it, or the flags that are given with it", problem)
}

// noConfig matches the error for a file that may be anything, but is no kubeconfig.
var noConfig = regexp.MustCompile(`^error loading config file (".*"): couldn't get version/kind`)

// unread says why a kubeconfig cannot be read.
func unread(err error) string {
	if found := noConfig.FindStringSubmatch(err.Error()); found != nil {
		return fmt.Sprintf("file %s is not a kubeconfig", found[1])
	}
	return err.Error()
}
