"""Orders for several training jobs over one indexed dataset: see `DependentSampler` and docs/sampling.md."""

from viewcache.api.training.sampling import DependentSampler, JobSampler

__all__ = ["DependentSampler", "JobSampler"]
