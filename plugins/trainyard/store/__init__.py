"""S3 as Trainyard's orchestration uses it: one bucket's objects, conditional writes, presigned links, and the server's identities.

boto3 costs a second at import, so it is imported where a client is made and nowhere else: Airflow may parse modules that import this
package. The trainer's side has code of its own (``trainer.storage``).
"""

from trainyard.store.objects import ObjectInfo, Store
from trainyard.store.opening import Credentials, credentials, models_store_for, store_for

__all__ = ["Credentials", "ObjectInfo", "Store", "credentials", "models_store_for", "store_for"]
