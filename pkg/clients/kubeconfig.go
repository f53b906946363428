package clients

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ParseKubeconfig reads the kubeconfig of a remote cluster. It refuses whatever would make
// this program run a command, read a file or go through a proxy that the author
// of the kubeconfig chose. The error is one sentence for the user. The caller
// sets UserAgent, QPS and Burst.
func ParseKubeconfig(data []byte) (*rest.Config, error) {
	config, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be read: %w", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil {
		return nil, errors.New("the kubeconfig has no current context: set current-context to one that it holds")
	}
	cluster := config.Clusters[current.Cluster]
	if cluster == nil || cluster.Server == "" {
		return nil, errors.New("the current context of the kubeconfig names no cluster with a server address: add it")
	}
	user := config.AuthInfos[current.AuthInfo]
	if user == nil {
		return nil, errors.New("the current context of the kubeconfig names no user: add one with a token or a client certificate")
	}
	switch {
	case user.Exec != nil:
		return nil, errors.New("the kubeconfig runs a command (exec) to log in, which is not allowed here: use a token or a client certificate")
	case user.AuthProvider != nil:
		return nil, errors.New("the kubeconfig uses an auth-provider, which is not allowed here: use a token or a client certificate")
	case user.TokenFile != "" || user.ClientCertificate != "" || user.ClientKey != "" || cluster.CertificateAuthority != "":
		return nil, errors.New("the kubeconfig points to files, which are not there for this program: write their content into it (kubectl " +
			"config view --raw --flatten)")
	case cluster.ProxyURL != "":
		return nil, errors.New("the kubeconfig names a proxy, which is not allowed here: remove proxy-url")
	}
	result, err := clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig cannot be used: %w", err)
	}
	return result, nil
}
