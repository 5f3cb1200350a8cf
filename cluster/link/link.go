// Package link moves bytes between the nodes of one cluster, over several links at
// once, and says nothing about their meaning.
//
// One cluster key is the only secret: the TLS identity of each node and the key
// that seals packets are derived from it. What was not made with the key is dropped and
// counted. The package is not a discovery service: the nodes and their
// addresses are given.
package link
