package cli

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

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
			return Misuse("--request-timeout %q is no time: give one such as 30s, or 0 for that of the command", text)
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
		return fmt.Sprintf("file %s is none", found[1])
	}
	return err.Error()
}
