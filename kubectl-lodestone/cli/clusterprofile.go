package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
)

// clusterProfile is what a ClusterProfile (multicluster.x-k8s.io/v1alpha1) tells of how its cluster is reached.
type clusterProfile struct {
	Status struct {
		AccessProviders []accessProvider `json:"accessProviders"`
		// CredentialProviders is the earlier name of AccessProviders.
		CredentialProviders []accessProvider `json:"credentialProviders"`
	} `json:"status"`
}

type accessProvider struct {
	Name    string              `json:"name"`
	Cluster clientcmdv1.Cluster `json:"cluster"`
}

// accessPlugins are the programs that log in with what a provider gives, of the file that KEP-5339 describes.
type accessPlugins struct {
	Providers []accessPlugin `json:"providers"`
}

type accessPlugin struct {
	Name string                 `json:"name"`
	Exec clientcmdv1.ExecConfig `json:"execConfig"`
	Args string                 `json:"profileSourcedCLIArgsPolicy"`
	Env  string                 `json:"profileSourcedEnvVarsPolicy"`
}

// ConnectProfile returns the cluster of a ClusterProfile of home, <namespace>/<name>. It logs in with the programs that a file names
// for the profile's access providers.
func ConnectProfile(ctx context.Context, home *Cluster, reference, file string) (*Cluster, error) {
	namespace, name, found := strings.Cut(reference, "/")
	if !found || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, Misuse("--cluster-profile %q is not <namespace>/<name> of a ClusterProfile", reference)
	}
	plugins, err := readPlugins(file)
	if err != nil {
		return nil, err
	}
	client, err := dynamic.NewForConfig(home.Config)
	if err != nil {
		return nil, fmt.Errorf("make client of ClusterProfiles: %w", err)
	}
	resource := schema.GroupVersionResource{Group: "multicluster.x-k8s.io", Version: "v1alpha1", Resource: "clusterprofiles"}
	object, err := client.Resource(resource).Namespace(namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil, Misuse("there is no ClusterProfile %q in namespace %q of home: kubectl get clusterprofiles -A shows those that are there",
			name, namespace)
	case err != nil:
		return nil, home.Explain("get ClusterProfile "+reference, err)
	}
	var profile clusterProfile
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &profile); err != nil {
		return nil, Misuse("ClusterProfile %s cannot be read: %w; correct its status", reference, err)
	}
	config, err := profileConfig(profile, plugins)
	if err != nil {
		return nil, Misuse("ClusterProfile %s gives no way to log in: %w", reference, err)
	}
	cluster, err := newCluster(name, config)
	if err != nil {
		return nil, Misuse("ClusterProfile %s cannot be used: %w; correct its status", reference, err)
	}
	return cluster, nil
}

func readPlugins(file string) (plugins accessPlugins, err error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return plugins, Misuse("--cluster-profile-providers cannot be read: %w", err)
	}
	if err := json.Unmarshal(content, &plugins); err != nil {
		return plugins, Misuse("--cluster-profile-providers %s is not JSON with a list providers: %w", file, err)
	}
	for _, plugin := range plugins.Providers {
		for _, policy := range []string{plugin.Args, plugin.Env} {
			if policy != "" && policy != "Ignore" {
				return plugins, Misuse("--cluster-profile-providers %s: provider %q wants arguments or variables of the ClusterProfile (%s), which "+
					"would let whoever writes it choose what runs here: leave the policy out", file, plugin.Name, policy)
			}
		}
	}
	return plugins, nil
}

// profileConfig is how the cluster of a profile is reached: with the first plugin for which the profile has a provider.
func profileConfig(profile clusterProfile, plugins accessPlugins) (*rest.Config, error) {
	providers := slices.Concat(profile.Status.AccessProviders, profile.Status.CredentialProviders)
	var known, given []string
	for _, provider := range providers {
		given = append(given, provider.Name)
	}
	for _, plugin := range plugins.Providers {
		known = append(known, plugin.Name)
		i := slices.IndexFunc(providers, func(p accessProvider) bool { return p.Name == plugin.Name })
		if i < 0 {
			continue
		}
		plugin.Exec.InteractiveMode = "Never"
		content, err := json.Marshal(clientcmdv1.Config{
			APIVersion: "v1", Kind: "Config", CurrentContext: "profile",
			Clusters:  []clientcmdv1.NamedCluster{{Name: "profile", Cluster: providers[i].Cluster}},
			AuthInfos: []clientcmdv1.NamedAuthInfo{{Name: "profile", AuthInfo: clientcmdv1.AuthInfo{Exec: &plugin.Exec}}},
			Contexts:  []clientcmdv1.NamedContext{{Name: "profile", Context: clientcmdv1.Context{Cluster: "profile", AuthInfo: "profile"}}},
		})
		if err != nil {
			return nil, fmt.Errorf("encode how it is reached: %w", err)
		}
		return clientcmd.RESTConfigFromKubeConfig(content) //nolint:wrapcheck // the caller says of which profile
	}
	return nil, fmt.Errorf("its access providers are %s, and the file has %s: name one of them there", orNone(given), orNone(known))
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
